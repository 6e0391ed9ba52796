//! What `hearken load --json -` prints, as far as the lab needs it.

use serde::Deserialize;

/// The schema that this version of the lab reads.
const SCHEMA: &str = "hearken-load/1";

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

/// Counts of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Requests {
    /// Due in the time of the run.
    pub intended: u64,
    /// Answered.
    pub replies: u64,
    /// Not answered.
    pub failed: u64,
}

/// A distribution by its quantiles, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Quantiles {
    /// How many values.
    pub count: u64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Greatest.
    pub max: f64,
}

/// Failures by kind, with the names that httperf gave them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct Errors {
    /// The client waited too long for a reply.
    pub client_timo: u64,
    /// The socket waited too long.
    pub socket_timo: u64,
    /// Connections refused.
    #[serde(rename = "connrefused")]
    pub conn_refused: u64,
    /// Connections reset.
    #[serde(rename = "connreset")]
    pub conn_reset: u64,
    /// The client had no descriptor left.
    pub fd_unavail: u64,
    /// The client had no port left.
    #[serde(rename = "addrunavail")]
    pub addr_unavail: u64,
    /// Anything else.
    pub other: u64,
}

impl Errors {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.client_timo
            + self.socket_timo
            + self.conn_refused
            + self.conn_reset
            + self.fd_unavail
            + self.addr_unavail
            + self.other
    }
}

/// Connections that carry no request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Idle {
    /// Wanted.
    pub asked: u64,
    /// Open at the end.
    pub held: u64,
    /// Closed by the server.
    pub lost: u64,
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
{"schema":"hearken-load/1","url":"http://127.0.0.1:1/1b","offered_rate":2000.0,"duration_s":1.0,
 "arrivals":"poisson","connections":50,"seed":1,"future":{"x":[1]},
 "requests":{"intended":2000,"sent":1990,"replies":1980,"failed":20},
 "status":{"1xx":0,"2xx":1980,"3xx":0,"4xx":0,"5xx":0},"reply_rate":1979.5,
 "latency_ns":{"count":1980,"mean":5e4,"min":1,"p50":40000,"p90":9e4,"p95":1,"p99":120000,"p999":2,"max":3},
 "lateness_ns":{"count":1980,"mean":1,"p50":1,"p90":2,"p95":3,"p99":7000,"p999":5,"max":6},
 "errors":{"client-timo":3,"socket-timo":0,"connrefused":1,"connreset":2,"fd-unavail":4,"addrunavail":5,"other":6},
 "idle":{"asked":10,"held":9,"lost":1,"re-established":0},"bytes":{"received":1,"sent":2}}
"#;

    #[test]
    fn a_full_result_after_a_line_of_talk() {
        let result = parse(FULL).unwrap();
        assert_eq!(result.requests, Requests { intended: 2000, replies: 1980, failed: 20 });
        assert_eq!((result.latency_ns.p50, result.latency_ns.p99), (40000.0, 120000.0));
        assert_eq!(result.lateness_ns.p99, 7000.0);
        assert_eq!(result.errors.total(), 21);
        assert_eq!((result.errors.fd_unavail, result.errors.addr_unavail), (4, 5));
        assert_eq!(result.idle, Idle { asked: 10, held: 9, lost: 1 });
    }

    #[test]
    fn what_is_no_result_is_said() {
        assert!(parse("").unwrap_err().contains("no JSON"));
        assert!(parse("{").is_err());
        let other = FULL.replace("hearken-load/1", "hearken-load/9");
        assert!(parse(&other).unwrap_err().contains("hearken-load/9"));
    }
}
