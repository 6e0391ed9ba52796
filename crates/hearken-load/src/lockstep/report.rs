//! The report of a pass, with its JSON fields.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::failure::Errors;
use crate::report::{Bytes, Quantiles, Requests, Status};
use crate::summary::{
    Grouped, HumanBytes, write_counts, write_line, write_quantile_header, write_quantiles,
};

/// The value of [`Report::schema`].
pub const SCHEMA: &str = "hearken-lockstep/2";

/// The report of a pass.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Report {
    /// Name and version of the format: [`SCHEMA`].
    pub schema: String,
    /// Whether all requests have replies.
    pub complete: bool,
    /// URL of the requests.
    pub url: String,
    /// Number of connections in a round.
    pub batch: u64,
    /// Number of requests sent at once on each connection.
    pub pipeline: u64,
    /// Whether the requests used HTTP/2, on a stream each.
    #[serde(default)]
    pub http2: bool,
    /// Whether each request used a new connection.
    pub close: bool,
    /// Duration of the pass in seconds.
    pub duration_s: f64,
    /// Numbers of requests: `scheduled = replies + failed + unfinished`.
    pub requests: Requests,
    /// Replies by status class.
    pub status: Status,
    /// Content length of each reply in bytes.
    pub content_bytes: u64,
    /// Duration of a round, from the first send to the end of the last reply. This is the time of a
    /// full batch, not the latency of a request.
    pub round_ns: Quantiles,
    /// The failure that ended the pass, if any.
    pub errors: Errors,
    /// Number of connections opened.
    pub connections_opened: u64,
    /// Bytes on all connections.
    pub bytes: Bytes,
    /// Descriptions of problems.
    pub warnings: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [replies, scheduled, opened, content, batch] = [
            self.requests.replies,
            self.requests.scheduled,
            self.connections_opened,
            self.content_bytes,
            self.batch,
        ]
        .map(Grouped);
        let each = match (self.close, self.pipeline) {
            (_, streams) if self.http2 => format!("HTTP/2, {streams} streams each"),
            (true, _) => "one request each".to_owned(),
            (false, 1) => "persistent".to_owned(),
            (false, depth) => format!("persistent, {depth} pipelined requests each"),
        };
        writeln!(
            f,
            "{}\n  load       in lockstep: rounds of {batch} connections, {each}",
            self.url
        )?;
        writeln!(f, "  replies    {replies} of {scheduled}, {content} bytes of content each")?;
        write_counts(f, "status", &self.status.by_class())?;
        write_counts(f, "errors", &self.errors.by_name())?;
        writeln!(f, "  over       {opened} connections, in {:.2} s", self.duration_s)?;
        let [received, sent] = [self.bytes.received, self.bytes.sent].map(HumanBytes);
        write_line(f, "bytes", &format!("{received} received, {sent} sent"))?;
        for warning in &self.warnings {
            write_line(f, "warning", warning)?;
        }
        if self.round_ns.count == 0 {
            return Ok(());
        }
        write_quantile_header(f)?;
        write_quantiles(f, "round", &self.round_ns)?;
        write_line(f, "", "round: duration of a full batch")
    }
}
