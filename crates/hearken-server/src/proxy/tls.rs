//! TLS settings of connections to upstream servers.

use std::sync::Arc;

use hearken_http::h2;
use hearken_tls::ClientTls;

use super::config::{Address, Config, ProxyMode, Server, Upstreams};
use crate::runtime::server::StartError;

/// Number of settings of each server with TLS in the list of [`profiles`].
const PER_SERVER: u32 = 2;

/// Returns the number of each server's first settings in the list of [`profiles`], from 1; 0 without TLS.
pub(super) fn numbers(config: &Upstreams) -> impl Iterator<Item = u32> {
    config.servers.iter().scan(1, |next, server| {
        let number = *next;
        *next += if server.tls { PER_SERVER } else { 0 };
        Some(if server.tls { number } else { 0 })
    })
}

/// Returns the settings of the servers with TLS: for each, those with all protocols, and those for
/// HTTP/1.1 only.
///
/// # Errors
/// There are no settings for them, or a server has no name.
pub(crate) fn profiles(config: &Config) -> Result<Arc<[ClientTls]>, StartError> {
    let ProxyMode::Reverse(upstreams) = &config.mode else { return Ok(Arc::default()) };
    let servers = upstreams.servers.iter().filter(|server| server.tls);
    let http1: &[&[u8]] = &[b"http/1.1"];
    let all: &[&[u8]] = if upstreams.http2 { &[h2::ALPN, b"http/1.1"] } else { http1 };
    let both = |server| [profile(upstreams, server, all), profile(upstreams, server, http1)];
    servers.flat_map(both).collect()
}

fn profile(
    upstreams: &Upstreams,
    server: &Server,
    alpn: &[&[u8]],
) -> Result<ClientTls, StartError> {
    let host = match &server.address {
        Address::Inet(address) => address.ip().to_string(),
        Address::Name(name, _) => name.strip_suffix('.').unwrap_or(name).to_owned(),
        Address::Unix(_) => "localhost".to_owned(),
    };
    let name = upstreams.tls_name.as_ref().unwrap_or(&host);
    let settings =
        upstreams.tls.as_ref().and_then(|profile| profile.with_alpn(alpn).for_server(name));
    settings.ok_or_else(|| StartError::UpstreamTls { name: name.clone() })
}
