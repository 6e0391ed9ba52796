//! The part of the output of `hearken load --json -` that the lab uses.

use hearken_load::{Errors, Idle, Quantiles, Requests, SCHEMA};
use serde::Deserialize;

/// The result of a load generator run. Other fields are ignored.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct LoadResult {
    /// Name and version of the format.
    pub schema: String,
    /// Request counts.
    pub requests: Requests,
    /// Replies per second.
    #[serde(default)]
    pub reply_rate: f64,
    /// Mean arrivals per second.
    #[serde(default)]
    pub offered_rate: f64,
    /// Connections opened for requests.
    #[serde(default)]
    pub connections_opened: u64,
    /// Latency from the scheduled time of a request to the end of its reply.
    #[serde(default)]
    pub latency_ns: Quantiles,
    /// Delay of the generator, from the scheduled time of a request to the time it was sent.
    #[serde(default)]
    pub lateness_ns: Quantiles,
    /// Failures by kind.
    #[serde(default)]
    pub errors: Errors,
    /// Idle connection counts.
    #[serde(default)]
    pub idle: Idle,
}

/// Parses the output of the generator. Ignores lines before the first `{`.
pub(crate) fn parse(output: &str) -> Result<LoadResult, String> {
    let json = &output[output.find('{').ok_or("no JSON in its output")?..];
    let result: LoadResult = serde_json::from_str(json).map_err(|e| e.to_string())?;
    if result.schema == SCHEMA {
        Ok(result)
    } else {
        Err(format!("its format is '{}', expected '{SCHEMA}'", result.schema))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = r#"holding 10 idle connections
{"schema":"hearken-load/4","url":"http://127.0.0.1:1/1b","offered_rate":2000.0,"duration_s":1.0,
 "arrivals":"poisson","connections":50,"seed":1,"future":{"x":[1]},
 "requests":{"scheduled":2000,"sent":1990,"replies":1980,"failed":20},
 "status":{"1xx":0,"2xx":1980,"3xx":0,"4xx":0,"5xx":0},"reply_rate":1979.5,
 "latency_ns":{"count":1980,"mean":5e4,"min":1,"p50":40000,"p90":90000,"p95":1,"p99":120000,"p999":2,"max":3},
 "lateness_ns":{"count":1980,"mean":1,"p50":1,"p90":2,"p95":3,"p99":7000,"p999":5,"max":6},
 "errors":{"client-timo":3,"socket-timo":0,"connrefused":1,"connreset":2,"fd-unavail":4,"addrunavail":5,"other":6},
 "idle":{"requested":10,"open":9,"lost":1,"reestablished":0},"bytes":{"received":1,"sent":2}}
"#;

    #[test]
    fn parses_a_result_after_other_output() {
        let result = parse(FULL).unwrap();
        let Requests { scheduled, replies, failed, .. } = result.requests;
        assert_eq!((scheduled, replies, failed), (2000, 1980, 20));
        assert_eq!((result.latency_ns.p50, result.latency_ns.p99), (40000, 120000));
        assert_eq!(result.lateness_ns.p99, 7000);
        assert_eq!(result.errors.total(), 21);
        assert_eq!((result.errors.fd_unavail, result.errors.addr_unavail), (4, 5));
        assert_eq!(result.idle, Idle { requested: 10, open: 9, lost: 1, ..Idle::default() });
    }

    #[test]
    fn rejects_other_output_and_other_schemas() {
        assert!(parse("").unwrap_err().contains("no JSON"));
        assert!(parse("{").is_err());
        let other = FULL.replace("hearken-load/4", "hearken-load/9");
        assert!(parse(&other).unwrap_err().contains("hearken-load/9"));
    }
}
