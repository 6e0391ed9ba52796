//! What is known of one server.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex};

use hearken::timer::Time;

use crate::proxy::config::Address;

/// An administrator has it drained.
pub(super) const DRAINING: u8 = 1;
/// An administrator has turned it off.
pub(super) const OFF: u8 = 2;
/// It has failed its checks.
pub(super) const UNHEALTHY: u8 = 4;
/// Its name has no address.
pub(super) const NO_ADDRESS: u8 = 8;

/// What one worker counts of a server. Nobody else writes it.
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
    /// Why it gets nothing, but for a pause.
    pub(super) flags: AtomicU8,
    /// How many failures there were since something went well. Never 0 for long while it is paused:
    /// what goes well is looked into only if it is not, which costs one load otherwise.
    pub(super) failures: AtomicU32,
    /// Until when it is paused; 0 if it is not. Once that is over it is on trial.
    pub(super) paused_until: AtomicU64,
    /// Whether a trial is in flight.
    pub(super) trial: AtomicBool,
    /// Since when it is up again; 0 if it has been up from the start.
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

/// Where a server can be reached.
#[derive(Clone)]
pub(in crate::proxy) enum Endpoints {
    Inet(Arc<[SocketAddr]>),
    Unix(Arc<Path>),
}

impl ServerState {
    pub(super) fn new(address: &Address) -> ServerState {
        let port = |port: u16| if port == 80 { String::new() } else { format!(":{port}") };
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
            flags: AtomicU8::new(if named { NO_ADDRESS } else { 0 }),
            failures: AtomicU32::new(0),
            paused_until: AtomicU64::new(0),
            trial: AtomicBool::new(false),
            up_since: AtomicU64::new(0),
            checks_ok: AtomicU64::new(0),
            checks_failed: AtomicU64::new(0),
            last_failure: Mutex::new(named.then(|| "its name was not looked up yet".to_owned())),
        }
    }

    /// Nothing is held against it any more, and its slow start begins.
    pub(super) fn recover(&self, now: Time) {
        self.up_since.store(now.as_nanos().max(1), Relaxed);
        // In this order: see `Shared::failures`.
        self.failures.store(0, Relaxed);
        self.paused_until.store(0, Release);
    }
}
