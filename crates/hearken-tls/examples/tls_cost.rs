//! What TLS costs a server: instructions per request and handshake, and memory per idle connection.
//!
//! ```text
//! cargo build --release -p hearken-tls --example tls_cost
//! tls_cost serve CERT KEY tls|plain        prints its address; prints its memory for each line of input
//! tls_cost client CERT ADDR get N          one connection, N requests
//! tls_cost client CERT ADDR full N         N connections
//! tls_cost client CERT ADDR resumed N      N connections after the first one
//! tls_cost client CERT ADDR idle N         holds N connections after a request on each
//! tls_cost bare CERT KEY get|full|resumed N
//! ```
//!
//! Run `serve` under `valgrind --tool=callgrind` with two values of N: the difference divided by that of N
//! is the cost. For `bare`, which is rustls without this crate, add `--toggle-collect='*bare_server*'`.

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use hearken::io::readiness::{Policy, ReadinessIo};
use hearken::io::{CompletionKind, Io, ListenOptions};
use hearken::mechanism::Open;
use hearken::mechanism::epoll::{Edge, Epoll};
use hearken_tls::server::{CertificateFiles, ServerTlsSettings};
use hearken_tls::{ServerTls, TlsIo, TlsLimits, pem, provider};
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const REQUEST: &[u8] = b"GET /index.html HTTP/1.1\r\nHost: localhost\r\nUser-Agent: cost\r\n\r\n";
const RESPONSE: [u8; 240] = [b'r'; 240];

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["serve", cert, key, kind] => serve(cert, key, kind == "tls"),
        ["client", cert, addr, mode, count] => client(cert, addr, mode, count.parse()?),
        ["bare", cert, key, mode, count] => bare(cert, key, mode, count.parse()?),
        _ => Err("see the documentation at the top of the file".into()),
    }
}

fn serve(cert: &str, key: &str, is_tls: bool) -> Result<()> {
    let mut policy = Policy::default();
    policy.batch = 64;
    let io = ReadinessIo::new(Epoll::<Edge>::open()?, policy)?;
    let mut io = TlsIo::new(io, TlsLimits::default());
    let settings = ServerTlsSettings::new(CertificateFiles::new(cert, key));
    io.set_accepts(if is_tls { Some(ServerTls::load(settings)?) } else { None });
    let listener = io.listen(
        &"127.0.0.1:0".parse::<std::net::SocketAddr>()?.into(),
        &ListenOptions::default(),
    )?;
    io.start(listener);
    println!("{}", io.local_addr(listener)?);
    let waker = io.waker();
    std::thread::spawn(move || {
        let mut line = String::new();
        while std::io::stdin().read_line(&mut line).is_ok_and(|count| count > 0) {
            waker.wake();
        }
        std::process::exit(0);
    });
    loop {
        io.wait(None)?;
        while let Some(completion) = io.next() {
            match completion.kind {
                CompletionKind::Accepted { token, .. } => io.start(token),
                CompletionKind::Received(_) => drop(io.send_now(completion.token, &RESPONSE)),
                CompletionKind::End | CompletionKind::ReceiveFailed(_) => {
                    io.close(completion.token);
                }
                CompletionKind::Woken => report_memory()?,
                _ => {}
            }
        }
    }
}

/// Prints the proportional set size in KiB.
fn report_memory() -> Result<()> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup")?;
    let line = text.lines().find(|line| line.starts_with("Pss:"));
    println!("{}", line.and_then(|line| line.split_whitespace().nth(1)).unwrap_or("0"));
    Ok(())
}

fn client_config(cert: &str, resumes: bool) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    for (_, certificate) in pem::certificates(cert.as_ref())? {
        roots.add(certificate)?;
    }
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    if !resumes {
        config.resumption = Resumption::disabled();
    }
    Ok(Arc::new(config))
}

fn client(cert: &str, addr: &str, mode: &str, count: usize) -> Result<()> {
    let config = client_config(cert, mode == "resumed")?;
    let is_plain = mode.starts_with("plain-");
    let mut held = Vec::new();
    match mode.trim_start_matches("plain-") {
        "get" | "idle" if is_plain => {
            let mut one = TcpStream::connect(addr)?;
            for number in 0..count {
                if mode == "plain-idle" && number > 0 {
                    held.push(std::mem::replace(&mut one, TcpStream::connect(addr)?));
                }
                one.write_all(REQUEST)?;
                one.read_exact(&mut [0; RESPONSE.len()])?;
            }
            held.push(one);
            return wait_for_input();
        }
        "get" => {
            let mut stream = connect(&config, addr)?;
            for _ in 0..count {
                exchange(&mut stream)?;
            }
        }
        "idle" => {
            let mut streams = Vec::new();
            for _ in 0..count {
                let mut stream = connect(&config, addr)?;
                exchange(&mut stream)?;
                streams.push(stream);
            }
            return wait_for_input();
        }
        _ => {
            for _ in 0..=count {
                let mut stream = connect(&config, addr)?;
                exchange(&mut stream)?;
                stream.conn.send_close_notify();
                stream.flush()?;
            }
        }
    }
    Ok(())
}

fn wait_for_input() -> Result<()> {
    println!("ready");
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}

type Stream = StreamOwned<ClientConnection, TcpStream>;

fn connect(config: &Arc<ClientConfig>, addr: &str) -> Result<Stream> {
    let connection = ClientConnection::new(Arc::clone(config), ServerName::try_from("localhost")?)?;
    Ok(StreamOwned::new(connection, TcpStream::connect(addr)?))
}

fn exchange(stream: &mut Stream) -> Result<()> {
    stream.write_all(REQUEST)?;
    stream.read_exact(&mut [0; RESPONSE.len()])?;
    Ok(())
}

/// Runs sessions of rustls in memory, with the settings of this crate.
fn bare(cert: &str, key: &str, mode: &str, count: usize) -> Result<()> {
    let chain = pem::certificates(cert.as_ref())?.into_iter().map(|(_, item)| item).collect();
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, pem::key(key.as_ref())?)?;
    config.ignore_client_order = true;
    config.send_tls13_tickets = 1;
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new()?;
    let config = Arc::new(config);
    let client = client_config(cert, mode == "resumed")?;
    let (connections, requests) = if mode == "get" { (1, count) } else { (count + 1, 1) };
    for _ in 0..connections {
        let mut near =
            ClientConnection::new(Arc::clone(&client), ServerName::try_from("localhost")?)?;
        let mut far = None;
        let mut wire = Vec::new();
        for number in 0..requests + 2 {
            near.write_tls(&mut wire)?;
            if number >= 2 {
                near.writer().write_all(REQUEST)?;
                near.write_tls(&mut wire)?;
            }
            let reply = bare_server(&mut far, &config, &wire, number >= 2)?;
            wire.clear();
            let mut reply = &reply[..];
            while !reply.is_empty() {
                near.read_tls(&mut reply)?;
                near.process_new_packets()?;
            }
            let _ = near.reader().read(&mut [0; 1024]);
        }
    }
    Ok(())
}

/// Processes what a client sent, and answers its requests.
#[inline(never)]
fn bare_server(
    session: &mut Option<ServerConnection>,
    config: &Arc<ServerConfig>,
    mut received: &[u8],
    answers: bool,
) -> Result<Vec<u8>> {
    let session = match session {
        Some(session) => session,
        None => session.insert(ServerConnection::new(Arc::clone(config))?),
    };
    let mut reply = Vec::new();
    while !received.is_empty() {
        session.read_tls(&mut received)?;
        session.process_new_packets()?;
    }
    if answers {
        let _ = session.reader().read(&mut [0; 1024])?;
        session.writer().write_all(&RESPONSE)?;
    }
    while session.wants_write() {
        session.write_tls(&mut reply)?;
    }
    Ok(reply)
}
