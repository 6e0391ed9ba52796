//! Addresses, workers, and errors at the start.

use hearken_server::static_files::SiteConfig;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

use hearken_server::{Config, StartError, start};
use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket, sockopt};

use crate::common::{Client, RunningServer, Setup, Site, get, workers};

pub(crate) fn four_workers_share_an_address(setup: &Setup) {
    let site = Site::new();
    let server = setup.serve(&site, |config| config.event_loops.workers = workers(4));
    assert_eq!(server.workers(), 4);
    assert_eq!(server.mechanism(), setup.events);
    assert_ne!(server.addr().port(), 0);
    // A thread closes an idle connection for a new one.
    let count = if setup.has_thread_per_connection() { 4 } else { 64 };
    let mut clients: Vec<Client> = (0..count).map(|_| server.client()).collect();
    clients.iter_mut().for_each(|client| client.send(get("/small")));
    for client in &mut clients {
        assert_eq!(client.response().body, b"small\n");
        assert_eq!(client.stream.peer_addr().unwrap(), server.addr());
    }
}

pub(crate) fn serves_over_ipv6(setup: &Setup) {
    let local = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
    if TcpListener::bind(local).is_err() {
        return eprintln!("skipped: IPv6 is not available");
    }
    let site = Site::new();
    for count in [1, 2] {
        let server = setup.serve(&site, |config| {
            config.event_loops.listen = local;
            config.event_loops.workers = workers(count);
        });
        assert!(server.addr().is_ipv6());
        assert_eq!(server.client().get("/small").body, b"small\n");
    }
}

pub(crate) fn two_servers_are_independent(setup: &Setup) {
    let sites = [Site::new(), Site::new()];
    sites[0].add("which", b"first");
    sites[1].add("which", b"second");
    let servers = sites.each_ref().map(|site| setup.serve(site, |_| {}));
    let mut clients = servers.each_ref().map(RunningServer::client);
    assert_eq!(clients[0].get("/which").body, b"first");
    assert_eq!(clients[1].get("/which").body, b"second");
    let [first, second] = servers;
    first.end();
    clients[0].assert_closed();
    assert_eq!(clients[1].get("/which").body, b"second");
    second.end();
}

fn config(site: &Site) -> Config {
    let mut config = Config::static_files(SiteConfig::default());
    config.event_loops.listen = (Ipv4Addr::LOCALHOST, 0).into();
    config.static_files_mut().unwrap().root = site.root();
    config
}

/// Returns the error of a server that does not start. Asserts that its message is a line that contains
/// `part`.
fn start_error(config: &Config, part: &str) -> StartError {
    let error = start(config).map(|server| server.addr()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(part) && text.lines().count() == 1, "{part:?} is not in {text:?}");
    error
}

#[test]
fn reports_a_port_in_use() {
    let site = Site::new();
    let exclusive = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    // A socket with SO_REUSEPORT would share the port with others that set it.
    let sharing = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    sockopt::set_socket_reuseport(&sharing, true).unwrap();
    bind(&sharing, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    listen(&sharing, 1).unwrap();
    let shared = getsockname(&sharing).unwrap().try_into().unwrap();
    for addr in [exclusive.local_addr().unwrap(), shared] {
        for count in [1, 3] {
            let mut config = config(&site);
            (config.event_loops.listen, config.event_loops.workers) = (addr, workers(count));
            let error = start_error(&config, &addr.to_string());
            assert!(matches!(error, StartError::Listen { .. }), "{count} workers: {error:?}");
        }
    }
}

#[test]
fn restarts_on_the_same_port() {
    // A connection that the server closes first leaves the port in TIME-WAIT.
    let site = Site::new();
    let restart = || {
        let mut config = config(&site);
        for count in [1, 2, 1, 2] {
            config.event_loops.workers = workers(count);
            let server = start(&config)?;
            config.event_loops.listen = server.addr();
            let mut client = Client::connect(server.addr());
            client.get("/small");
            drop(server);
            client.assert_closed();
        }
        Ok::<(), StartError>(())
    };
    // Another test may take the port in between, but not every time.
    let failed = (0..5).map(|_| restart()).take_while(Result::is_err).count();
    assert!(failed < 5, "{:?}", restart());
}

#[test]
fn reports_an_unavailable_address() {
    let site = Site::new();
    let listen = SocketAddr::from(([192, 0, 2, 1], 0));
    for count in [1, 2] {
        let mut config = config(&site);
        (config.event_loops.listen, config.event_loops.workers) = (listen, workers(count));
        assert!(matches!(start_error(&config, "192.0.2.1"), StartError::Listen { .. }));
    }
}

#[test]
fn reports_a_missing_directory() {
    let site = Site::new();
    for name in ["missing", "small"] {
        let mut config = config(&site);
        config.static_files_mut().unwrap().root = site.root().join(name);
        for count in [1, 2] {
            config.event_loops.workers = workers(count);
            assert!(matches!(start_error(&config, name), StartError::Handler { .. }), "{name}");
        }
    }
}

#[test]
fn reports_an_unknown_mechanism() {
    let site = Site::new();
    let mut config = config(&site);
    config.event_loops.events = "kqueue".to_owned();
    assert!(matches!(start_error(&config, "kqueue"), StartError::Mechanism(_)));
}

#[test]
fn selects_the_best_mechanism_by_default() {
    let site = Site::new();
    let server = start(&config(&site)).unwrap();
    assert_eq!(server.mechanism(), hearken::mechanism::auto::ranking().best().entry.name);
    assert_eq!(Client::connect(server.addr()).get("/small").body, b"small\n");
}
