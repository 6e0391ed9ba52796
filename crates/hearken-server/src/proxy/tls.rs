//! TLS settings of connections to upstream servers.

use std::sync::Arc;

use hearken_tls::ClientTls;

use super::config::{Address, Config, ProxyMode, Server, Upstreams};
use crate::runtime::server::StartError;

/// Returns the number of each server's settings in the list of [`profiles`], from 1; 0 without TLS.
pub(super) fn numbers(config: &Upstreams) -> impl Iterator<Item = u32> {
    config.servers.iter().scan(0, |last, server| {
        *last += u32::from(server.tls);
        Some(if server.tls { *last } else { 0 })
    })
}

/// Returns the settings of the servers with TLS.
///
/// # Errors
/// There are no settings for them, or a server has no name.
pub(crate) fn profiles(config: &Config) -> Result<Arc<[ClientTls]>, StartError> {
    let ProxyMode::Reverse(upstreams) = &config.mode else { return Ok(Arc::default()) };
    let servers = upstreams.servers.iter().filter(|server| server.tls);
    servers.map(|server| profile(upstreams, server)).collect()
}

fn profile(upstreams: &Upstreams, server: &Server) -> Result<ClientTls, StartError> {
    let host = match &server.address {
        Address::Inet(address) => address.ip().to_string(),
        Address::Name(name, _) => name.strip_suffix('.').unwrap_or(name).to_owned(),
        Address::Unix(_) => "localhost".to_owned(),
    };
    let name = upstreams.tls_name.as_ref().unwrap_or(&host);
    let settings = upstreams.tls.as_ref().and_then(|profile| profile.for_server(name));
    settings.ok_or_else(|| StartError::UpstreamTls { name: name.clone() })
}
