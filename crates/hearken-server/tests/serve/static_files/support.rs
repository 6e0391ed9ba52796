//! A directory to serve, and a client without sockets.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hearken::io::Body;
use hearken_http::{DateCache, Limits, RequestParser, ResponseParser};
use hearken_server::static_files::{Site, SiteConfig};
use tempfile::TempDir;

pub(crate) const SECRET: &str = "the secret outside";

/// Longer than the resolution of file times, a tick of at most 10 ms.
const CACHEABLE_AFTER: Duration = Duration::from_millis(40);

/// The directory `root` next to a file `secret`, and a site that serves `root`.
pub(crate) struct Fixture {
    pub(crate) outer: TempDir,
    pub(crate) site: Site,
}

/// A response.
#[derive(Debug, PartialEq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Whether the body is sent from a descriptor.
    pub(crate) from_file: bool,
}

impl Response {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(given, _)| given == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

pub(crate) fn today() -> DateCache {
    DateCache::new(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs())
}

/// Waits until files that were just changed may be cached: longer than the resolution of their times.
pub(crate) fn wait_until_cacheable() {
    sleep(CACHEABLE_AFTER);
}

impl Fixture {
    pub(crate) fn new() -> Fixture {
        Fixture::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut SiteConfig)) -> Fixture {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().join("root");
        fs::create_dir(&root).unwrap();
        fs::write(outer.path().join("secret"), SECRET).unwrap();
        let mut config = SiteConfig { root, ..SiteConfig::default() };
        change(&mut config);
        Fixture { site: Site::open(&config).unwrap(), outer }
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.outer.path().join("root").join(name)
    }

    pub(crate) fn write(&self, name: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// Sends a GET request in a new turn.
    pub(crate) fn get(&mut self, target: &str) -> Response {
        self.request("GET", target, "")
    }

    /// Sends a request in a new turn. `fields` are lines.
    pub(crate) fn request(&mut self, method: &str, target: &str, fields: &str) -> Response {
        self.site.begin_turn();
        self.request_same_turn(method, target, fields)
    }

    /// Sends a request in the same turn.
    pub(crate) fn request_same_turn(
        &mut self,
        method: &str,
        target: &str,
        fields: &str,
    ) -> Response {
        let request = format!("{method} {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        self.send(request.as_bytes(), true).unwrap_or_else(|| panic!("{request:?} is malformed"))
    }

    /// Sends a request. Returns nothing if it is malformed.
    pub(crate) fn send(&mut self, bytes: &[u8], keep_alive: bool) -> Option<Response> {
        let request = RequestParser::new().parse(bytes, &Limits::default()).ok()??;
        let mut out = b"before".to_vec();
        let answer = self.site.answer(&request, &today(), keep_alive, &mut out).append_to(&mut out);
        assert!(out.starts_with(b"before"), "the buffer was cleared");
        let out = out.split_off(b"before".len());
        let method = request.method;
        let response = ResponseParser::new().parse(&out, method, &Limits::default());
        let response = response.expect("a well-formed response").expect("a complete response");
        assert_eq!(response.status, answer.status);
        let head_len = response.head_len;
        let text = String::from_utf8(out[..head_len].to_vec()).unwrap();
        let fields: Vec<(String, String)> = text
            .trim_end()
            .split("\r\n")
            .skip(1)
            .map(|line| {
                assert!(!line.contains(['\r', '\n']), "{text:?}");
                let (name, value) = line.split_once(": ").unwrap();
                (name.to_owned(), value.to_owned())
            })
            .collect();
        let mut body = out[head_len..].to_vec();
        let mut from_file = false;
        match answer.body {
            Body::None => {}
            Body::Bytes(bytes) => {
                assert!(body.is_empty());
                body.extend_from_slice(&bytes);
            }
            Body::File(part) => {
                assert!(body.is_empty());
                from_file = true;
                let mut bytes = vec![0; usize::try_from(part.length).unwrap()];
                let mut at = 0;
                while at < bytes.len() {
                    let offset = part.offset + at as u64;
                    match rustix::io::pread(&part.file, &mut bytes[at..], offset).unwrap() {
                        0 => panic!("the file has fewer bytes than Content-Length"),
                        more => at += more,
                    }
                }
                body = bytes;
            }
        }
        let response = Response { status: answer.status, fields, body, from_file };
        response.check(request.method == hearken_http::Method::Head, answer.length);
        Some(response)
    }
}

impl Response {
    /// Asserts what holds for every response.
    fn check(&self, is_head: bool, length: u64) {
        let mut names: Vec<String> =
            self.fields.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
        names.sort();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all, "a duplicate field: {self:?}");
        assert_eq!(self.field("Date").map(str::len), Some(29), "{self:?}");
        assert_eq!(self.body.len() as u64, length, "{self:?}");
        let content_length =
            self.field("Content-Length").map(|value| value.parse::<u64>().unwrap());
        if matches!(self.status, 204 | 304) {
            assert!(self.body.is_empty() && content_length.is_none(), "{self:?}");
            return;
        }
        assert_eq!(self.field("X-Content-Type-Options"), Some("nosniff"));
        if is_head {
            assert!(self.body.is_empty() && content_length.is_some(), "{self:?}");
        } else {
            assert_eq!(content_length, Some(length), "{self:?}");
        }
        assert!(!self.text().contains(SECRET), "{self:?}");
    }
}
