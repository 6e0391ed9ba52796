use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use hearken_http::{Request, h2};

use super::*;
use crate::front::{Answer, HalfClose, Handled, Incoming, Settings, Timeouts};
use crate::runtime::event_loops::Model;
use crate::runtime::metrics::Metrics;
use crate::runtime::server::{Service, StartError, Worker, start_workers};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// A handler that panics at requests for `/panic`.
#[derive(Clone)]
struct Panics;

impl<I: Relay> Handler<I> for Panics {
    fn on_request(&mut self, incoming: Incoming<'_, I>, request: &Request<'_>) -> Handled {
        assert_ne!(request.raw_target, b"/panic", "planned");
        let (body, length) = (hearken::io::Body::None, 0);
        incoming.respond(request, Answer { ready: OK, body, status: 200, length })
    }
}

impl Service for Panics {
    fn worker<I: Relay + 'static>(
        self,
        io: I,
        context: &WorkerContext,
    ) -> Result<Box<dyn Worker>, StartError> {
        let settings = Settings {
            timeouts: Timeouts::default(),
            min_rate: 0,
            limits: hearken_http::Limits::default(),
            half_close: HalfClose::Respond,
            proxy_protocol: Vec::new(),
            needs_peers: false,
            hsts: None,
            http2: Some(h2::Config::default()),
        };
        let front = Front::new(settings, 1, None, context.worker_metrics());
        let loops = EventLoopConfig::default();
        Ok(Box::new(EventLoop::new(io, front, self, context, &loops, false)?))
    }
}

/// Returns the response to a request on a connection, or `None` if the connection was closed.
fn get(client: &mut TcpStream, target: &str) -> Option<Vec<u8>> {
    client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(client, "GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut response = vec![0; OK.len()];
    client.read_exact(&mut response).ok().map(|()| response)
}

#[test]
fn a_panic_closes_only_the_connection_of_its_thread() {
    for model in [Model::Threads, Model::Pool] {
        let loops = EventLoopConfig {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            model,
            workers: NonZeroUsize::new(2),
            ..EventLoopConfig::default()
        };
        let metrics = Arc::new(Metrics::new(2));
        let server = start_workers(&loops, false, None, &metrics, &Panics).unwrap();
        let [mut other, mut client] = [(); 2].map(|()| TcpStream::connect(server.addr()).unwrap());
        for connection in [&mut other, &mut client] {
            assert_eq!(get(connection, "/").as_deref(), Some(OK));
        }
        for panics in 1..4 {
            assert_eq!(get(&mut client, "/panic"), None);
            assert_eq!(get(&mut other, "/").as_deref(), Some(OK));
            // Another thread serves the next connection.
            client = TcpStream::connect(server.addr()).unwrap();
            assert_eq!(get(&mut client, "/").as_deref(), Some(OK));
            let mut page = String::new();
            metrics.render(&[], &mut page);
            let expected = format!("hearken_errors_total{{kind=\"panic\"}} {panics}\n");
            assert!(page.contains(&expected), "{page}");
        }
        server.handle().stop();
        server.wait().unwrap();
    }
}
