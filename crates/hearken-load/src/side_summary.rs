//! Text summary of the WebSocket connections and slow clients.

use std::fmt;

use crate::reasons::Reasons;
use crate::report::Report;
use crate::slow_clients::{SlowClients, SlowGroup};
use crate::summary::{
    Grouped, HumanBytes, write_counts, write_list, write_quantile_header, write_quantiles,
};
use crate::websocket::WebSockets;

impl Report {
    /// Writes the results of the WebSocket connections and of the slow clients.
    pub(crate) fn write_side(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, group) in self.slow_clients.iter().flat_map(SlowClients::groups) {
            write_slow(f, name, group)?;
        }
        self.websocket.as_ref().map_or(Ok(()), |websocket| write_websocket(f, websocket))
    }
}

fn write_slow(f: &mut fmt::Formatter<'_>, name: &str, group: &SlowGroup) -> fmt::Result {
    let [open, requested, requests] = [group.open, group.requested, group.requests].map(Grouped);
    let (title, direction) =
        if name == "readers" { ("slow reads", "received") } else { ("slow sends", "sent") };
    let bytes = HumanBytes(group.bytes);
    let open = format!("{open} of {requested} open at the end");
    write_list(f, title, &[open, format!("{requests} requests"), format!("{bytes} {direction}")])?;
    let outcomes = [
        ("completed", group.completed),
        ("refused", group.refused),
        ("closed by server", group.closed_by_server),
        ("timed out", group.timed_out),
    ];
    write_counts(f, "", &outcomes)?;
    write_reasons(f, "failures", &group.failures)
}

/// Writes a line with the reasons and their counts, if there are any.
fn write_reasons(f: &mut fmt::Formatter<'_>, title: &str, reasons: &Reasons) -> fmt::Result {
    let counts: Vec<_> = reasons.iter().collect();
    write_counts(f, title, &counts)
}

fn write_websocket(f: &mut fmt::Formatter<'_>, of: &WebSockets) -> fmt::Result {
    let [open, requested] = [of.open, of.requested].map(Grouped);
    let [lost, reestablished] = [of.lost, of.reestablished].map(Grouped);
    let open = format!("{open} of {requested} open at the end");
    let lost = format!("{lost} lost, {reestablished} re-established");
    write_list(f, "websocket", &[open, lost])?;
    let sent = [("messages", of.messages_sent), ("pings", of.pings_sent)];
    let received = [
        ("messages", of.messages_received),
        ("pings", of.pings_received),
        ("pongs", of.pongs_received),
    ];
    write_counts(f, "sent", &sent)?;
    write_counts(f, "received", &received)?;
    write_reasons(f, "handshakes", &of.handshake_failures)?;
    write_reasons(f, "losses", &of.loss_reasons)?;
    if of.latency_ns.count > 0 {
        write_quantile_header(f)?;
        write_quantiles(f, of.latency_name(), &of.latency_ns)?;
        writeln!(f)?;
    }
    Ok(())
}
