//! Opens connections of clients, plain or under TLS.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hearken::Token;
use hearken::io::sim::{Host, SimIo, SimIoSettings};
use hearken::io::{Address, ConnectOptions, Io};
use hearken_tls::{ClientTls, TlsIo, TlsLimits};

use crate::client::HttpVersion;
use crate::tls;

/// Maximum duration of a handshake, which is longer than any server waits.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(3600);

/// A way to open connections.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    settings: SimIoSettings,
    /// TLS settings, if connections are under TLS.
    profiles: Option<Arc<[ClientTls]>>,
}

impl Connector {
    /// Creates one. Connections are under TLS if there are settings for each version of HTTP.
    pub(crate) fn new(settings: SimIoSettings, profiles: Option<Arc<[ClientTls]>>) -> Connector {
        Connector { settings, profiles }
    }

    /// Creates the `Io` of clients.
    pub(crate) fn io(&self, host: &Host) -> TlsIo<SimIo> {
        let mut limits = TlsLimits::default();
        limits.handshake_timeout = HANDSHAKE_TIMEOUT;
        let mut io = TlsIo::new(SimIo::new(host, self.settings), limits);
        io.set_profiles(self.profiles.clone().unwrap_or_default());
        io
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// As [`Io::connect_with`].
    pub(crate) fn connect(
        &self,
        io: &mut impl Io,
        address: &Address,
        version: HttpVersion,
    ) -> io::Result<Token> {
        let mut options = ConnectOptions::default();
        options.tls = self.profiles.as_ref().map_or(0, |_| tls::profile(version));
        io.connect_with(address, &options)
    }
}
