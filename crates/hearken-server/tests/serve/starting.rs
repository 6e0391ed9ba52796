//! Addresses, workers, and what keeps a server from starting.

use hearken_server::static_files::SiteConfig;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

use hearken_server::{Config, StartError, start};
use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket, sockopt};

use crate::support::{Client, Running, Site, Way, get, workers};

pub(crate) fn four_workers_on_one_address(way: &Way) {
    let site = Site::new();
    let server = way.serve(&site, |config| config.loops.workers = workers(4));
    assert_eq!(server.workers(), 4);
    assert_eq!(server.events(), way.events);
    assert_ne!(server.addr().port(), 0);
    let mut clients: Vec<Client> = (0..64).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| client.send(get("/small")));
    for client in &mut clients {
        assert_eq!(client.answer().body, b"small\n");
        assert_eq!(client.stream.peer_addr().unwrap(), server.addr());
    }
}

pub(crate) fn on_ipv6(way: &Way) {
    let local = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
    if TcpListener::bind(local).is_err() {
        return eprintln!("skipped: there is no IPv6 here");
    }
    let site = Site::new();
    for count in [1, 2] {
        let server = way.serve(&site, |config| {
            config.loops.listen = local;
            config.loops.workers = workers(count);
        });
        assert!(server.addr().is_ipv6());
        assert_eq!(server.connect().get("/small").body, b"small\n");
    }
}

pub(crate) fn two_servers(way: &Way) {
    let sites = [Site::new(), Site::new()];
    sites[0].add("which", b"first");
    sites[1].add("which", b"second");
    let servers = sites.each_ref().map(|site| way.serve(site, |_| {}));
    let mut clients = servers.each_ref().map(Running::connect);
    assert_eq!(clients[0].get("/which").body, b"first");
    assert_eq!(clients[1].get("/which").body, b"second");
    let [first, second] = servers;
    first.end();
    clients[0].ends();
    assert_eq!(clients[1].get("/which").body, b"second");
    second.end();
}

fn config(site: &Site) -> Config {
    let mut config = Config::static_files(SiteConfig::default());
    config.loops.listen = (Ipv4Addr::LOCALHOST, 0).into();
    config.site().unwrap().root = site.root();
    config
}

/// Why a server did not start, and that it says so in a line that names `what`.
fn refusal(config: &Config, what: &str) -> StartError {
    let error = start(config).map(|server| server.addr()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(what) && text.lines().count() == 1, "{text:?} is to tell of {what:?}");
    error
}

#[test]
fn on_a_port_that_is_taken() {
    let site = Site::new();
    let holder = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    // One that would share it, with those who would, too.
    let sharing = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    sockopt::set_socket_reuseport(&sharing, true).unwrap();
    bind(&sharing, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    listen(&sharing, 1).unwrap();
    let shared = getsockname(&sharing).unwrap().try_into().unwrap();
    for addr in [holder.local_addr().unwrap(), shared] {
        for count in [1, 3] {
            let mut config = config(&site);
            (config.loops.listen, config.loops.workers) = (addr, workers(count));
            let error = refusal(&config, &addr.to_string());
            assert!(matches!(error, StartError::Listen { .. }), "{count} workers: {error:?}");
        }
    }
}

/// What the server closed first leaves the port in TIME-WAIT.
#[test]
fn again_on_the_same_port() {
    let site = Site::new();
    let again = || {
        let mut config = config(&site);
        for count in [1, 2, 1, 2] {
            config.loops.workers = workers(count);
            let server = start(&config)?;
            config.loops.listen = server.addr();
            let mut client = Client::connect(server.addr());
            client.get("/small");
            drop(server);
            client.ends();
        }
        Ok::<(), StartError>(())
    };
    // Another test may have taken the port meanwhile, though not each time.
    let failed = (0..5).map(|_| again()).take_while(Result::is_err).count();
    assert!(failed < 5, "{:?}", again());
}

#[test]
fn where_no_address_is() {
    let site = Site::new();
    let listen = SocketAddr::from(([192, 0, 2, 1], 0));
    for count in [1, 2] {
        let mut config = config(&site);
        (config.loops.listen, config.loops.workers) = (listen, workers(count));
        assert!(matches!(refusal(&config, "192.0.2.1"), StartError::Listen { .. }));
    }
}

#[test]
fn without_a_directory() {
    let site = Site::new();
    for name in ["missing", "small"] {
        let mut config = config(&site);
        config.site().unwrap().root = site.root().join(name);
        for count in [1, 2] {
            config.loops.workers = workers(count);
            assert!(matches!(refusal(&config, name), StartError::Handler { .. }), "{name}");
        }
    }
}

#[test]
fn with_an_unknown_mechanism() {
    let site = Site::new();
    let mut config = config(&site);
    config.loops.events = "kqueue".to_owned();
    assert!(matches!(refusal(&config, "kqueue"), StartError::Mechanism(_)));
}

#[test]
fn with_the_best_mechanism() {
    let site = Site::new();
    let server = start(&config(&site)).unwrap();
    assert_eq!(server.events(), hearken::mechanism::auto::choose().best().entry.name);
    assert_eq!(Client::connect(server.addr()).get("/small").body, b"small\n");
}
