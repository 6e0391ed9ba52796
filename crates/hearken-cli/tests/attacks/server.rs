//! The attacked server, and clients that use it as intended.

use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rcgen::CertifiedKey;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConnection, StreamOwned};
use tempfile::TempDir;

use super::attacker::{config, session};
use super::program::{Running, serve};
use super::table::Target;

/// Size in bytes of the large file.
const LARGE: usize = 1 << 20;

/// A running server of the files `small` and `large`.
pub(crate) struct Server {
    running: Running,
    /// The server behind a proxy.
    _origin: Option<Running>,
    _files: TempDir,
    pub(crate) target: Target,
    pub(crate) port: u16,
    pub(crate) certificate: CertificateDer<'static>,
}

impl Server {
    /// Starts a server with these settings in its config file.
    pub(crate) fn start(target: Target, settings: &str) -> Server {
        let files = TempDir::new().unwrap();
        let path = |name: &str| files.path().join(name).display().to_string();
        fs::write(path("small"), "small\n").unwrap();
        fs::write(path("large"), vec![b'x'; LARGE]).unwrap();
        fs::write(path("config"), settings).unwrap();
        let names = vec!["localhost".to_owned()];
        let CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(names).unwrap();
        fs::write(path("cert"), cert.pem() + &signing_key.serialize_pem()).unwrap();
        let (root, config, cert_file) = (path(""), path("config"), path("cert"));
        let common = ["--listen", "127.0.0.1:0", "--workers", "1", "--config", &config];
        let mut origin = None;
        let mut running = match target {
            Target::Files => Running::start(&[&["serve", &root], &common[..]].concat()),
            Target::Tls => {
                let tls = ["--tls-cert", &cert_file];
                Running::start(&[&["serve", &root], &common[..], &tls].concat())
            }
            Target::Proxy => {
                let (server, url) = serve(files.path(), &["--workers", "1"]);
                origin = Some(server);
                let url = url.trim_end_matches('/').to_owned();
                Running::start(&[&["proxy", "--to", &url], &common[..]].concat())
            }
        };
        let line = running.line();
        let (_, rest) = line.split_once("://127.0.0.1:").unwrap_or_else(|| panic!("{line:?}"));
        let port = match target {
            // The address of the server behind it may be in the same line.
            Target::Proxy => line.rsplit_once("://127.0.0.1:").unwrap().1,
            _ => rest,
        };
        let port = port.split(|digit: char| !digit.is_ascii_digit()).next().unwrap();
        let port = port.parse().unwrap_or_else(|_| panic!("{line:?}"));
        let certificate = cert.der().clone();
        Server { running, _origin: origin, _files: files, target, port, certificate }
    }

    /// Connects a client.
    pub(crate) fn connect(&self) -> io::Result<Client> {
        let socket = TcpStream::connect(("127.0.0.1", self.port))?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(match self.target {
            Target::Tls => {
                let session = session(config(Some(&self.certificate), None));
                Client::Tls(Box::new(StreamOwned::new(session, socket)))
            }
            Target::Files | Target::Proxy => Client::Plain(socket),
        })
    }

    /// Returns the peak of the resident memory in bytes.
    pub(crate) fn peak_memory(&self) -> u64 {
        let status = fs::read_to_string(self.proc("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    /// Returns the CPU time.
    pub(crate) fn cpu_time(&self) -> Duration {
        let stat = fs::read_to_string(self.proc("stat")).unwrap();
        let fields = stat.rsplit_once(')').unwrap().1.split_whitespace();
        let ticks: u64 = fields.skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum();
        Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
    }

    fn proc(&self, file: &str) -> String {
        format!("/proc/{}/{file}", self.running.child.id())
    }
}

/// A client that uses HTTP/1.1.
pub(crate) enum Client {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Client {
    /// Requests the small file.
    ///
    /// # Errors
    /// There is no complete response.
    pub(crate) fn get(&mut self) -> io::Result<()> {
        match self {
            Client::Plain(stream) => get(stream),
            Client::Tls(stream) => get(stream),
        }
    }
}

fn get(stream: &mut (impl Read + Write)) -> io::Result<()> {
    stream.write_all(b"GET /small HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut response = Vec::new();
    let mut buffer = [0; 4096];
    while !response.ends_with(b"\r\n\r\nsmall\n") {
        match stream.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => response.extend_from_slice(&buffer[..count]),
        }
    }
    Ok(())
}
