//! A directory, a server of it, and clients.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::num::{NonZeroU32, NonZeroUsize};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use hearken::io::find;
use hearken::io::readiness::{InterestPolicy, Order};
use hearken::mechanism::Open;
use hearken_server::static_files::SiteConfig;
use hearken_server::{Config, Server, start};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;
use tempfile::TempDir;

/// Only what hangs takes as long.
pub(crate) const HANG: Duration = Duration::from_secs(20);
pub(crate) const LARGE: usize = 8 << 20;
pub(crate) const HUGE: u64 = 64 << 20;

pub(crate) const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// A mechanism and a policy to serve with.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    pub(crate) events: &'static str,
    pub(crate) order: Order,
    pub(crate) accept_limit: Option<NonZeroU32>,
    pub(crate) interest: InterestPolicy,
}

impl Way {
    pub(crate) fn of<M: Open>() -> Way {
        Way::named(M::NAME)
    }

    pub(crate) fn named(events: &'static str) -> Way {
        Way {
            events,
            order: Order::default(),
            accept_limit: None,
            interest: InterestPolicy::default(),
        }
    }

    pub(crate) fn with_policy(mut self, change: impl FnOnce(&mut Way)) -> Way {
        change(&mut self);
        self
    }

    /// Itself, if this kernel has its mechanism.
    pub(crate) fn available(self) -> Option<Way> {
        match find(self.events).unwrap().probe() {
            Ok(()) => Some(self),
            Err(refused) => {
                eprintln!("skipped: {} cannot be had here: {refused}", self.events);
                None
            }
        }
    }

    /// A configuration to serve `site` on a free port of the loopback.
    pub(crate) fn config(&self, site: &Site) -> Config {
        let mut config =
            Config::static_files(SiteConfig { root: site.root(), ..SiteConfig::default() });
        config.loops.listen = SocketAddr::from(([127, 0, 0, 1], 0));
        config.loops.events = self.events.to_owned();
        config.loops.accept_limit = self.accept_limit;
        config.loops.order = self.order;
        config.loops.interest = self.interest;
        config.loops.grace = HANG / 2;
        config
    }

    /// Serves `site` as `change` has it.
    pub(crate) fn serve(&self, site: &Site, change: impl FnOnce(&mut Config)) -> Running {
        let mut config = self.config(site);
        change(&mut config);
        let server = start(&config).unwrap_or_else(|error| panic!("{self:?}: {error}"));
        Running { server: Some(server), way: self.clone() }
    }
}

/// Limits the number of open connections.
pub(crate) fn limit_connections(config: &mut Config, count: usize) {
    config.loops.max_connections = NonZeroUsize::new(count);
}

/// Sets the minimum rate of uploads in bytes per second, and the time over which it is measured.
pub(crate) fn limit_uploads(config: &mut Config, min_rate: u64, over: Duration) {
    config.min_rate = min_rate;
    config.timeouts.body = over;
}

/// Sets the timeout of a request's whole body.
pub(crate) fn request_timeout(config: &mut Config, timeout: Duration) {
    config.timeouts.request = timeout;
}

/// Writes the access log to `path`.
pub(crate) fn log_to(config: &mut Config, path: &Path) {
    config.access_log = Some(path.to_owned());
}

/// A server that has to end well.
pub(crate) struct Running {
    server: Option<Server>,
    way: Way,
}

impl Running {
    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.addr())
    }

    /// Stops it and waits for its end, which is to be a good one.
    pub(crate) fn end(mut self) {
        self.stop_and_wait();
    }

    pub(crate) fn wait(mut self) {
        let ended = self.server.take().unwrap().wait();
        ended.unwrap_or_else(|error| panic!("{:?}: {error}", self.way));
    }

    /// Asserts that no former connection is counted: `limit` clients are connected at the same time.
    pub(crate) fn assert_all_slots_are_free(&self, limit: usize) {
        let mut clients: Vec<Client> = (0..limit).map(|_| self.connect()).collect();
        // The second time shows that none was closed to make room.
        for _ in 0..2 {
            for client in &mut clients {
                client.send(get("/small"));
                let answer = client.answer();
                assert_eq!(answer.body, b"small\n", "{:?}: a connection leaked", self.way);
            }
        }
    }

    fn stop_and_wait(&mut self) {
        if let Some(server) = self.server.take() {
            server.stopper().stop();
            let ended = server.wait();
            if !thread::panicking() {
                ended.unwrap_or_else(|error| panic!("{:?}: {error}", self.way));
            }
        }
    }
}

impl Deref for Running {
    type Target = Server;

    fn deref(&self) -> &Server {
        self.server.as_ref().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("served with {:?}", self.way);
        }
        self.stop_and_wait();
    }
}

/// A directory with files.
pub(crate) struct Site(TempDir);

impl Site {
    /// With `/small`, `/inline`, `/cached` and `/empty`.
    pub(crate) fn new() -> Site {
        let site = Site(tempfile::tempdir().unwrap());
        site.add("small", b"small\n");
        site.add("inline", &pattern()[..4000]);
        site.add("cached", &pattern()[..50_000]);
        site.add("empty", b"");
        site.add("mark", site.root().as_os_str().as_encoded_bytes());
        site
    }

    /// And with `/large`, of [`LARGE`] bytes of [`pattern`].
    pub(crate) fn with_large() -> Site {
        let site = Site::new();
        site.add("large", pattern());
        site
    }

    /// And with `/huge`, of [`HUGE`] zeros.
    pub(crate) fn with_huge() -> Site {
        let site = Site::new();
        File::create(site.root().join("huge")).unwrap().set_len(HUGE).unwrap();
        site
    }

    /// Whether a server of it is there. On a port that was given back there may be another's, and
    /// even the client itself.
    pub(crate) fn is_served_at(&self, addr: SocketAddr) -> bool {
        let Ok(mut stream) = TcpStream::connect(addr) else { return false };
        let mut answer = Vec::new();
        stream.set_read_timeout(Some(ms(500))).unwrap();
        let _ = stream.write_all(&request("GET /mark", "Connection: close\r\n"));
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).ends_with(self.root().to_str().unwrap())
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.0.path().to_owned()
    }

    pub(crate) fn add(&self, name: &str, bytes: &[u8]) {
        fs::write(self.0.path().join(name), bytes).unwrap();
    }
}

/// [`LARGE`] bytes, no two places alike.
pub(crate) fn pattern() -> &'static [u8] {
    static PATTERN: OnceLock<Vec<u8>> = OnceLock::new();
    PATTERN.get_or_init(|| (0..LARGE as u64 / 8).flat_map(u64::to_le_bytes).collect())
}

pub(crate) fn request(line: &str, fields: &str) -> Vec<u8> {
    format!("{line} HTTP/1.1\r\nHost: test\r\n{fields}\r\n").into_bytes()
}

pub(crate) fn get(path: &str) -> Vec<u8> {
    request(&format!("GET {path}"), "")
}

/// A connection to a server.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    /// Received, and not yet looked at.
    received: Vec<u8>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    pub(crate) fn length(&self) -> u64 {
        self.field("Content-Length").map_or(0, |length| length.parse().unwrap())
    }
}

impl Client {
    pub(crate) fn connect(addr: SocketAddr) -> Client {
        Client::of(TcpStream::connect(addr).unwrap())
    }

    pub(crate) fn of(stream: TcpStream) -> Client {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(HANG)).unwrap();
        stream.set_write_timeout(Some(HANG)).unwrap();
        Client { stream, received: Vec::new() }
    }

    /// With a receive buffer of `bytes`, about.
    pub(crate) fn receiving(self, bytes: usize) -> Client {
        sockopt::set_socket_recv_buffer_size(&self.stream, bytes).unwrap();
        self
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    pub(crate) fn end_sending(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// Closes with a reset.
    pub(crate) fn reset(self) {
        sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO)).unwrap();
    }

    /// The head of the next answer.
    pub(crate) fn head(&mut self) -> Answer {
        let end = loop {
            if let Some(at) = self.received.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            assert!(self.receive() > 0, "ended within a head: {:?}", self.text());
        };
        let head = String::from_utf8(self.received.drain(..end).collect()).unwrap();
        let status = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
        let status = status.unwrap_or_else(|| panic!("not a status line: {head:?}"));
        Answer { status, head, body: Vec::new() }
    }

    /// The next answer to a request other than HEAD.
    pub(crate) fn answer(&mut self) -> Answer {
        let mut answer = self.head();
        if answer.status >= 200 && !matches!(answer.status, 204 | 304) {
            let length = usize::try_from(answer.length()).unwrap();
            let had = length.min(self.received.len());
            let rest = self.received.split_off(had);
            answer.body = std::mem::replace(&mut self.received, rest);
            answer.body.resize(length, 0);
            self.stream.read_exact(&mut answer.body[had..]).unwrap_or_else(|error| {
                panic!("a body of {length} bytes, {had} with the head: {error}")
            });
        }
        answer
    }

    /// Asks for a file and takes the answer.
    pub(crate) fn get(&mut self, path: &str) -> Answer {
        self.send(get(path));
        self.answer()
    }

    /// Reads `count` bytes and forgets them.
    pub(crate) fn skip(&mut self, mut count: u64) {
        let mut buffer = vec![0; 1 << 18];
        let had = self.received.len().min(usize::try_from(count).unwrap());
        self.received.drain(..had);
        count -= had as u64;
        while count > 0 {
            let room = buffer.len().min(usize::try_from(count).unwrap_or(usize::MAX));
            let got = self.stream.read(&mut buffer[..room]).unwrap();
            assert!(got > 0, "ended {count} bytes too early");
            count -= got as u64;
        }
    }

    /// That the connection ends here, in order.
    pub(crate) fn ends(&mut self) {
        assert_eq!(self.text(), "", "more than was expected");
        assert_eq!(self.receive(), 0, "more than was expected: {:?}", self.text());
    }

    /// Reads to the end or to a reset, and tells how many bytes came.
    pub(crate) fn drain(&mut self) -> u64 {
        let mut buffer = vec![0; 1 << 18];
        let mut count = std::mem::take(&mut self.received).len() as u64;
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return count,
                Ok(got) => count += got as u64,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return count,
                Err(error) => panic!("after {count} bytes: {error}"),
            }
        }
    }

    /// Whether something comes, or the connection ends, within `patience`.
    pub(crate) fn hears(&self, patience: Duration) -> bool {
        self.is(PollFlags::IN, patience)
    }

    /// Whether the connection is reset within `patience`; what was received need not be read.
    pub(crate) fn is_reset(&self, patience: Duration) -> bool {
        self.is(PollFlags::empty(), patience)
    }

    fn is(&self, what: PollFlags, patience: Duration) -> bool {
        let timeout = Timespec {
            tv_sec: patience.as_secs().try_into().unwrap(),
            tv_nsec: patience.subsec_nanos().into(),
        };
        poll(&mut [PollFd::new(&self.stream, what)], Some(&timeout)).unwrap() > 0
    }

    fn receive(&mut self) -> usize {
        let mut buffer = [0; 1 << 16];
        let got = self.stream.read(&mut buffer).unwrap_or_else(|error| {
            panic!("after {:?}: {error}", self.text());
        });
        self.received.extend_from_slice(&buffer[..got]);
        got
    }

    fn text(&self) -> String {
        let shown = &self.received[..self.received.len().min(500)];
        String::from_utf8_lossy(shown).into_owned()
    }
}

pub(crate) fn workers(count: usize) -> NonZeroUsize {
    NonZeroUsize::new(count).unwrap()
}

/// That `what` took as long as was promised, and did not hang.
pub(crate) fn assert_took(since: Instant, least: Duration, what: &str) {
    let took = since.elapsed();
    // The server counts from the beginning of its turn, which may be a little before.
    assert!(took + ms(100) >= least, "{what} after {took:?}, not {least:?}");
    assert!(took < HANG, "{what} after {took:?}, not {least:?}");
}
