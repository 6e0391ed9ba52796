//! What came of a pass: the JSON, field by field.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::failure::Errors;
use crate::report::{Bytes, Quantiles, Requests, Status};
use crate::summary::{Grouped, HumanBytes, write_counts, write_quantile_header, write_quantiles};

/// The value of [`Report::schema`].
pub const SCHEMA: &str = "hearken-lockstep/1";

/// What came of the rounds of a pass.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// Every request that was asked for has its reply.
    pub complete: bool,
    /// What was asked for.
    pub url: String,
    /// Connections in a round.
    pub batch: u64,
    /// Requests that each of them is sent at once.
    pub pipeline: u64,
    /// A connection for each request.
    pub close: bool,
    /// How long the pass took, in seconds.
    pub duration_s: f64,
    /// What became of the requests: `intended = replies + failed + unfinished`.
    pub requests: Requests,
    /// Replies by the class of their status.
    pub status: Status,
    /// The content that each reply had, in bytes.
    pub content_bytes: u64,
    /// From the first send of a round to the end of its last reply: of a whole batch, and no
    /// request's latency.
    pub round_ns: Quantiles,
    /// The request that ended the pass, if one did.
    pub errors: Errors,
    /// Connections that were made.
    pub connections_opened: u64,
    /// Bytes on all connections.
    pub bytes: Bytes,
    /// What went wrong, in sentences.
    pub warnings: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [replies, intended, opened, content, batch] = [
            self.requests.replies,
            self.requests.intended,
            self.connections_opened,
            self.content_bytes,
            self.batch,
        ]
        .map(Grouped);
        let each = match (self.close, self.pipeline) {
            (true, _) => "one request each".to_owned(),
            (false, 1) => "kept open".to_owned(),
            (false, depth) => format!("kept open, {depth} requests at once on each"),
        };
        writeln!(
            f,
            "{}\n  load       in lockstep: rounds of {batch} connections, {each}",
            self.url
        )?;
        writeln!(f, "  replies    {replies} of {intended}, {content} bytes of content each")?;
        write_counts(f, "status", &self.status.by_class())?;
        write_counts(f, "errors", &self.errors.by_name())?;
        writeln!(f, "  over       {opened} connections, in {:.2} s", self.duration_s)?;
        let [received, sent] = [self.bytes.received, self.bytes.sent].map(HumanBytes);
        writeln!(f, "  bytes      {received} received, {sent} sent")?;
        for warning in &self.warnings {
            writeln!(f, "  warning    {warning}")?;
        }
        if self.round_ns.count == 0 {
            return Ok(());
        }
        write_quantile_header(f)?;
        write_quantiles(f, "round", &self.round_ns, "of the whole batch")
    }
}
