//! What `hearken load --json -` prints, as far as the lab needs it.

use hearken_load::{Errors, Idle, Quantiles, Requests, SCHEMA};
use serde::Deserialize;

/// The result of one run of the load generator. Fields that are not listed are ignored.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct LoadResult {
    /// Name and version of the format.
    pub schema: String,
    /// What became of the requests.
    pub requests: Requests,
    /// Replies a second.
    #[serde(default)]
    pub reply_rate: f64,
    /// From the intended moment of a request to the end of its reply.
    #[serde(default)]
    pub latency_ns: Quantiles,
    /// From the intended moment of a request to its departure: the generator's own delay.
    #[serde(default)]
    pub lateness_ns: Quantiles,
    /// Failures by kind.
    #[serde(default)]
    pub errors: Errors,
    /// The idle connections.
    #[serde(default)]
    pub idle: Idle,
}

/// Reads the result out of what the generator printed; lines before the first `{` are its talk.
pub(crate) fn parse(output: &str) -> Result<LoadResult, String> {
    let json = &output[output.find('{').ok_or("it printed no JSON")?..];
    let result: LoadResult = serde_json::from_str(json).map_err(|e| e.to_string())?;
    if result.schema == SCHEMA {
        Ok(result)
    } else {
        Err(format!("it speaks `{}`, not `{SCHEMA}`", result.schema))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = r#"holding 10 idle connections
{"schema":"hearken-load/2","url":"http://127.0.0.1:1/1b","offered_rate":2000.0,"duration_s":1.0,
 "arrivals":"poisson","connections":50,"seed":1,"future":{"x":[1]},
 "requests":{"intended":2000,"sent":1990,"replies":1980,"failed":20},
 "status":{"1xx":0,"2xx":1980,"3xx":0,"4xx":0,"5xx":0},"reply_rate":1979.5,
 "latency_ns":{"count":1980,"mean":5e4,"min":1,"p50":40000,"p90":90000,"p95":1,"p99":120000,"p999":2,"max":3},
 "lateness_ns":{"count":1980,"mean":1,"p50":1,"p90":2,"p95":3,"p99":7000,"p999":5,"max":6},
 "errors":{"client-timo":3,"socket-timo":0,"connrefused":1,"connreset":2,"fd-unavail":4,"addrunavail":5,"other":6},
 "idle":{"asked":10,"held":9,"lost":1,"re-established":0},"bytes":{"received":1,"sent":2}}
"#;

    #[test]
    fn a_full_result_after_a_line_of_talk() {
        let result = parse(FULL).unwrap();
        let Requests { intended, replies, failed, .. } = result.requests;
        assert_eq!((intended, replies, failed), (2000, 1980, 20));
        assert_eq!((result.latency_ns.p50, result.latency_ns.p99), (40000, 120000));
        assert_eq!(result.lateness_ns.p99, 7000);
        assert_eq!(result.errors.total(), 21);
        assert_eq!((result.errors.fd_unavail, result.errors.addr_unavail), (4, 5));
        assert_eq!(result.idle, Idle { asked: 10, held: 9, lost: 1, ..Idle::default() });
    }

    #[test]
    fn what_is_no_result_is_said() {
        assert!(parse("").unwrap_err().contains("no JSON"));
        assert!(parse("{").is_err());
        let other = FULL.replace("hearken-load/2", "hearken-load/9");
        assert!(parse(&other).unwrap_err().contains("hearken-load/9"));
    }
}
