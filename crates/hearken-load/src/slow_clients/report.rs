//! The part of the report about slow clients.

use serde::{Deserialize, Serialize};

use crate::reasons::Reasons;

/// Results of the slow clients.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct SlowClients {
    /// Clients that read their replies slowly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readers: Option<SlowGroup>,
    /// Clients that send their requests slowly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub senders: Option<SlowGroup>,
}

/// Results of slow clients of one kind. A request that the server refuses or does not answer is not
/// an error of the load.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct SlowGroup {
    /// Bytes per second on each connection.
    pub rate: f64,
    /// Number of connections to establish.
    pub requested: u64,
    /// Number of connections established at the end.
    pub open: u64,
    /// Number of requests begun.
    pub requests: u64,
    /// Number of requests with a complete reply of a status below 400.
    pub completed: u64,
    /// Number of requests with a status of 400 or above, or with a reply before their end.
    pub refused: u64,
    /// Number of requests whose connection the server closed before the end of the reply.
    pub closed_by_server: u64,
    /// Number of requests for which the server sent nothing until the timeout.
    pub timed_out: u64,
    /// Number of bytes transferred slowly: received by readers, sent by senders.
    pub bytes: u64,
    /// Connections that could not be established, and invalid replies, by reason.
    pub failures: Reasons,
}

impl SlowClients {
    /// Adds the results of another thread or process.
    pub(crate) fn add(&mut self, other: &SlowClients) {
        for (sum, group) in
            [(&mut self.readers, &other.readers), (&mut self.senders, &other.senders)]
        {
            if let Some(group) = group {
                sum.get_or_insert_default().add(group);
            }
        }
    }

    /// Returns the groups with their names.
    pub fn groups(&self) -> impl Iterator<Item = (&'static str, &SlowGroup)> {
        let groups = [("readers", &self.readers), ("senders", &self.senders)];
        groups.into_iter().filter_map(|(name, group)| Some((name, group.as_ref()?)))
    }
}

impl SlowGroup {
    fn add(&mut self, other: &SlowGroup) {
        self.rate = other.rate;
        for (sum, count) in self.counts_mut().into_iter().zip(other.counts()) {
            *sum = sum.saturating_add(count);
        }
        self.failures.add(&other.failures);
    }

    fn counts_mut(&mut self) -> [&mut u64; 8] {
        [
            &mut self.requested,
            &mut self.open,
            &mut self.requests,
            &mut self.completed,
            &mut self.refused,
            &mut self.closed_by_server,
            &mut self.timed_out,
            &mut self.bytes,
        ]
    }

    /// Returns all counts, in the order of [`counts_mut`](SlowGroup::counts_mut).
    pub(crate) fn counts(&self) -> [u64; 8] {
        [
            self.requested,
            self.open,
            self.requests,
            self.completed,
            self.refused,
            self.closed_by_server,
            self.timed_out,
            self.bytes,
        ]
    }
}
