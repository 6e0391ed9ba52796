//! Session tickets received from the server.
//!
//! A TLS 1.3 ticket can be used once, and the store of rustls keeps only eight. With that store, 92
//! of 100 connections that start together would make a full handshake.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustls::NamedGroup;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;

/// Maximum number of stored tickets. Each takes about 1 KiB plus the server's certificates.
const MAX_TICKETS: usize = 1024;

/// The tickets of one server. A run has only one server, so the server name is ignored.
#[derive(Debug, Default)]
pub(super) struct TicketStore(Mutex<Stored>);

#[derive(Debug, Default)]
struct Stored {
    group: Option<NamedGroup>,
    /// The TLS 1.2 session, which any number of connections can resume.
    session: Option<Tls12ClientSessionValue>,
    tickets: VecDeque<Tls13ClientSessionValue>,
}

impl TicketStore {
    fn lock(&self) -> MutexGuard<'_, Stored> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientSessionStore for TicketStore {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.lock().group = Some(group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.lock().group
    }

    fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.lock().session = Some(value);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.lock().session.clone()
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.lock().session = None;
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        let mut stored = self.lock();
        if stored.tickets.len() == MAX_TICKETS {
            stored.tickets.pop_front();
        }
        stored.tickets.push_back(value);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        // The newest ticket expires last.
        self.lock().tickets.pop_back()
    }
}
