//! TLS of connections to servers.

use std::fmt;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use crate::session::Session;

/// The TLS settings of connections to one server. Clones are cheap and share the tickets.
#[derive(Clone)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl ClientTls {
    /// Creates settings for the server of a name, which is sent and verified.
    pub fn new(config: Arc<ClientConfig>, name: ServerName<'static>) -> ClientTls {
        ClientTls { config, name }
    }

    /// Creates the session of a new connection.
    ///
    /// # Errors
    /// The settings cannot be used.
    pub fn session(&self) -> Result<Session, rustls::Error> {
        Session::client(Arc::clone(&self.config), self.name.clone())
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls").field("name", &self.name).finish_non_exhaustive()
    }
}
