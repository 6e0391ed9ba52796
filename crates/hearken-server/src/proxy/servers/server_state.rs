//! The state of one server.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::{Arc, Mutex};

use hearken::timer::Time;

use crate::proxy::config::{Address, Protocol};
use crate::sync::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};

/// Flag: drained by an administrator.
pub(super) const DRAINING: u8 = 1;
/// Flag: disabled by an administrator.
pub(super) const OFF: u8 = 2;
/// Flag: health checks failed.
pub(super) const UNHEALTHY: u8 = 4;
/// Flag: the name has no address.
pub(super) const NO_ADDRESS: u8 = 8;

/// The counters of a server in one worker, which is their only writer.
#[repr(align(64))]
#[derive(Default)]
pub(in crate::proxy) struct ServerCounters {
    pub(in crate::proxy) requests: AtomicU64,
    pub(in crate::proxy) failures: AtomicU64,
    pub(in crate::proxy) retries: AtomicU64,
    pub(in crate::proxy) in_flight: AtomicU64,
}

pub(super) struct ServerState {
    pub(super) name: Box<str>,
    pub(super) authority: Box<str>,
    pub(super) address: ServerAddress,
    /// Number of the TLS settings in the list of the proxy, from 1; 0 without TLS.
    pub(super) tls: u32,
    pub(super) protocol: Protocol,
    /// Reasons, other than a pause, for which the server gets no requests.
    pub(super) flags: AtomicU8,
    /// Number of failures since the last success. It does not stay 0 while the server is paused. A
    /// success checks other state only if this is not 0, so it usually costs a single load. It is only changed by
    /// exchanges, as is `paused_until`: loom does not order a store after an exchange of another thread.
    pub(super) failures: AtomicU32,
    /// End of the pause in nanoseconds; 0 if the server is not paused. Afterwards it is on trial.
    pub(super) paused_until: AtomicU64,
    /// Whether a trial is in flight.
    pub(super) trial: AtomicBool,
    /// Time of the recovery in nanoseconds; 0 if the server was never down.
    pub(super) up_since: AtomicU64,
    pub(super) checks_ok: AtomicU64,
    pub(super) checks_failed: AtomicU64,
    pub(super) last_failure: Mutex<Option<String>>,
}

pub(super) enum ServerAddress {
    Inet(SocketAddr),
    Name(Mutex<Arc<[SocketAddr]>>),
    Unix(Arc<Path>),
}

/// The addresses of a server.
#[derive(Clone)]
pub(in crate::proxy) enum Endpoints {
    Inet(Arc<[SocketAddr]>),
    Unix(Arc<Path>),
}

impl ServerState {
    /// Creates the state of a server, whose TLS settings have the number `tls`.
    pub(super) fn new(address: &Address, tls: u32, protocol: Protocol) -> ServerState {
        let default = if tls == 0 { 80 } else { 443 };
        let port = |port: u16| if port == default { String::new() } else { format!(":{port}") };
        let (name, authority, at) = match address {
            Address::Inet(addr @ SocketAddr::V4(v4)) => {
                let host = v4.ip().to_string();
                (addr.to_string(), host + &port(addr.port()), ServerAddress::Inet(*addr))
            }
            Address::Inet(addr @ SocketAddr::V6(v6)) => {
                let host = format!("[{}]", v6.ip());
                (addr.to_string(), host + &port(addr.port()), ServerAddress::Inet(*addr))
            }
            Address::Name(host, number) => (
                format!("{host}:{number}"),
                host.clone() + &port(*number),
                ServerAddress::Name(Mutex::new(Arc::default())),
            ),
            Address::Unix(path) => (
                format!("unix:{}", path.display()),
                "localhost".to_owned(),
                ServerAddress::Unix(path.as_path().into()),
            ),
        };
        let named = matches!(at, ServerAddress::Name(_));
        ServerState {
            name: name.into(),
            authority: authority.into(),
            address: at,
            tls,
            protocol,
            flags: AtomicU8::new(if named { NO_ADDRESS } else { 0 }),
            failures: AtomicU32::new(0),
            paused_until: AtomicU64::new(0),
            trial: AtomicBool::new(false),
            up_since: AtomicU64::new(0),
            checks_ok: AtomicU64::new(0),
            checks_failed: AtomicU64::new(0),
            last_failure: Mutex::new(named.then(|| "the name is not resolved yet".to_owned())),
        }
    }

    /// Clears failures and the pause, and starts slow start.
    pub(super) fn recover(&self, now: Time) {
        self.up_since.store(now.as_nanos().max(1), Relaxed);
        // In this order; see `ServerState::failures`.
        self.failures.swap(0, Relaxed);
        self.paused_until.swap(0, Release);
    }
}
