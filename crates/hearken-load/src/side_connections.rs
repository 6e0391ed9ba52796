//! The connections at the side of the load, besides the idle ones: WebSocket connections and slow
//! clients.

use std::sync::Arc;

use hearken::io::{Completion, Io};
use hearken::timer::Time;

use crate::config::{Config, LoadError};
use crate::population::Status;
use crate::report::{Bytes, Handshakes};
use crate::shard::Shard;
use crate::slow_clients::{SlowClients, SlowGroup, SlowOptions, SlowReaders, SlowSenders};
use crate::target::Target;
use crate::url::Url;
use crate::websocket::{HandshakeRequest, WebSocketConnections, WebSocketPlan, WebSockets};
use crate::workload::Workload;

/// The settings that the connections of all threads share.
#[derive(Debug)]
pub(crate) struct SidePlan {
    websockets: Option<Arc<WebSocketPlan>>,
    readers: Option<SlowOptions>,
    senders: Option<SlowOptions>,
    /// The request of the slow clients.
    workload: Arc<Workload>,
}

impl SidePlan {
    /// Creates the plan. Slow clients send the request of `workload`. The number `tag` identifies the
    /// WebSocket messages of this process.
    pub(crate) fn new(
        config: &Config,
        url: &Url,
        workload: &Arc<Workload>,
        tag: u64,
    ) -> Result<SidePlan, LoadError> {
        let websockets = config.websockets.as_ref().map(|options| {
            let request = HandshakeRequest::new(url, &config.template, options)?;
            let options = options.clone();
            Ok::<_, LoadError>(Arc::new(WebSocketPlan { options, request, tag }))
        });
        Ok(SidePlan {
            websockets: websockets.transpose()?,
            readers: config.slow_readers,
            senders: config.slow_senders,
            workload: workload.clone(),
        })
    }

    /// Returns the results of no connections. A process of a load may have no share of them.
    pub(crate) fn empty_results(&self) -> SideResults {
        let group = |options: SlowOptions| SlowGroup { rate: options.rate, ..SlowGroup::default() };
        SideResults {
            websockets: self
                .websockets
                .as_ref()
                .map(|plan| WebSockets { mode: plan.options.mode, ..WebSockets::default() }),
            slow_clients: (self.readers.is_some() || self.senders.is_some()).then(|| SlowClients {
                readers: self.readers.map(group),
                senders: self.senders.map(group),
            }),
            ..SideResults::default()
        }
    }
}

/// The connections of a thread.
#[derive(Debug)]
pub(crate) struct SideConnections {
    websockets: Option<WebSocketConnections>,
    readers: Option<SlowReaders>,
    senders: Option<SlowSenders>,
}

impl SideConnections {
    /// Creates the connections of a thread. `share_of` returns its share of a number of connections.
    /// The first thread with such connections sends broadcasts.
    pub(crate) fn new(
        plan: &SidePlan,
        target: &Target,
        share_of: impl Fn(usize) -> usize,
        is_first: bool,
        share: Shard,
        seed: u64,
    ) -> SideConnections {
        let count = |options: SlowOptions| (options, share_of(options.connections));
        let slow =
            |options: Option<SlowOptions>| options.map(count).filter(|&(_, count)| count > 0);
        let workload = &plan.workload;
        SideConnections {
            websockets: plan.websockets.as_ref().and_then(|plan| {
                let count = share_of(plan.options.connections);
                (count > 0).then(|| {
                    let target = target.clone();
                    WebSocketConnections::new(target, plan, count, is_first, share, seed)
                })
            }),
            readers: slow(plan.readers)
                .map(|(options, count)| SlowReaders::new(target.clone(), workload, options, count)),
            senders: slow(plan.senders)
                .map(|(options, count)| SlowSenders::new(target.clone(), workload, options, count)),
        }
    }

    /// Opens some of the remaining connections. Returns true if more can be opened immediately.
    pub(crate) fn open_some(&mut self, io: &mut impl Io) -> bool {
        let mut more = self.websockets.as_mut().is_some_and(|of| of.open_some(io));
        more |= self.readers.as_mut().is_some_and(|of| of.open_some(io));
        more | self.senders.as_mut().is_some_and(|of| of.open_some(io))
    }

    /// Returns the status of each kind of connections.
    fn statuses(&self) -> impl Iterator<Item = Status> {
        let websockets = self.websockets.as_ref().map(|of| of.population.status());
        let readers = self.readers.as_ref().map(|of| of.population().status());
        let senders = self.senders.as_ref().map(|of| of.population().status());
        [websockets, readers, senders].into_iter().flatten()
    }

    /// Returns true once all connections have been established.
    pub(crate) fn is_prepared(&self) -> bool {
        self.statuses().all(|of| of.counts.established >= of.counts.requested)
    }

    /// Returns the number of connections established so far, without the replacements of lost ones.
    pub(crate) fn established(&self) -> u64 {
        self.statuses().map(|of| of.counts.established.min(of.counts.requested)).sum()
    }

    /// Returns the time of the next connection attempt.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.statuses().filter_map(|of| of.next_attempt).min()
    }

    /// Handles a completion, if its token identifies one of these connections.
    pub(crate) fn on_completion(&mut self, io: &mut impl Io, completion: Completion) {
        let token = completion.token;
        if let Some(of) = self.websockets.as_mut().filter(|of| of.population.owns(token)) {
            of.on_completion(io, completion);
        } else if let Some(of) = self.readers.as_mut().filter(|of| of.population().owns(token)) {
            of.on_completion(io, completion);
        } else if let Some(of) = self.senders.as_mut().filter(|of| of.population().owns(token)) {
            of.on_completion(io, completion);
        }
    }

    /// Returns the results so far.
    pub(crate) fn results(&self) -> SideResults {
        let mut results = SideResults {
            websockets: self.websockets.as_ref().map(WebSocketConnections::results),
            slow_clients: (self.readers.is_some() || self.senders.is_some()).then(|| SlowClients {
                readers: self.readers.as_ref().map(SlowReaders::results),
                senders: self.senders.as_ref().map(SlowSenders::results),
            }),
            ..SideResults::default()
        };
        for of in self.statuses() {
            results.bytes.add(&of.bytes);
            results.handshakes.add(&of.handshakes);
        }
        results
    }

    /// Starts to close the connections that require a handshake for that.
    pub(crate) fn close(&mut self, io: &mut impl Io) {
        if let Some(of) = &mut self.websockets {
            of.close(io);
        }
    }

    /// Returns whether these connections are closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.websockets.as_ref().is_none_or(|of| of.population.is_empty())
    }
}

/// The results of the connections.
#[derive(Debug, Default)]
pub(crate) struct SideResults {
    pub(crate) websockets: Option<WebSockets>,
    pub(crate) slow_clients: Option<SlowClients>,
    pub(crate) bytes: Bytes,
    pub(crate) handshakes: Handshakes,
}

impl SideResults {
    /// Adds the results of another thread.
    pub(crate) fn add(&mut self, other: &SideResults) {
        if let Some(websockets) = &other.websockets {
            self.websockets.get_or_insert_default().add(websockets);
        }
        if let Some(slow) = &other.slow_clients {
            self.slow_clients.get_or_insert_default().add(slow);
        }
        self.bytes.add(&other.bytes);
        self.handshakes.add(&other.handshakes);
    }
}
