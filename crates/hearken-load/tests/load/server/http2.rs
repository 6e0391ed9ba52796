//! Servers of HTTP/2: one of the `h2` crate, and one that goes away.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use bytes::Bytes;
use h2::Reason;
use h2::server::{Builder, SendResponse};
use hearken_http::h2::{Config, Connection, Event, HeadBuffer};
use http::{Request, Response};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;

/// The answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Status 200 with content of this number of bytes, after the request's content.
    Content(usize),
    /// Another status without content.
    Status(u16),
    /// No answer.
    Never,
    /// A reset of the stream.
    Reset(Reason),
}

/// Counts of a server.
#[derive(Debug, Default)]
pub struct Counts {
    pub connections: AtomicU64,
    pub requests: AtomicU64,
    pub received: AtomicU64,
    /// Number of streams that the client reset.
    pub cancelled: AtomicU64,
    streams: AtomicU64,
    /// Highest number of concurrent streams of all connections.
    pub peak_streams: AtomicU64,
}

impl Counts {
    pub fn of(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::SeqCst)
    }
}

/// A server of the `h2` crate.
pub struct Http2Server {
    pub addr: SocketAddr,
    pub counts: Arc<Counts>,
    scheme: &'static str,
}

type Behaviour = Arc<dyn Fn(u64) -> Answer + Send + Sync>;

/// Stream of bytes below HTTP/2.
trait Wire: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Wire for T {}

impl Http2Server {
    /// Starts a server whose answer depends on the number of the request, from 0.
    pub fn start(
        tls: Option<Arc<ServerConfig>>,
        configure: impl Fn(&mut Builder) + Send + Sync + 'static,
        behaviour: impl Fn(u64) -> Answer + Send + Sync + 'static,
    ) -> Http2Server {
        let counts = Arc::new(Counts::default());
        let scheme = if tls.is_some() { "https" } else { "http" };
        let (sender, receiver) = mpsc::channel();
        let (common, behaviour) = (counts.clone(), Arc::new(behaviour) as Behaviour);
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async move {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                sender.send(listener.local_addr().unwrap()).unwrap();
                let mut builder = h2::server::Builder::new();
                configure(&mut builder);
                while let Ok((socket, _)) = listener.accept().await {
                    socket.set_nodelay(true).unwrap();
                    let (builder, tls) = (builder.clone(), tls.clone());
                    let (counts, behaviour) = (common.clone(), behaviour.clone());
                    tokio::spawn(async move {
                        let wire: Pin<Box<dyn Wire>> = match tls {
                            None => Box::pin(socket),
                            Some(config) => match TlsAcceptor::from(config).accept(socket).await {
                                Ok(stream) => Box::pin(stream),
                                Err(_) => return,
                            },
                        };
                        serve(wire, builder, counts, behaviour).await;
                    });
                }
            });
        });
        Http2Server { addr: receiver.recv().unwrap(), counts, scheme }
    }

    /// Starts a server without TLS.
    pub fn plain(behaviour: impl Fn(u64) -> Answer + Send + Sync + 'static) -> Http2Server {
        Http2Server::start(None, |_| (), behaviour)
    }

    pub fn url(&self) -> String {
        format!("{}://{}/", self.scheme, self.addr)
    }
}

async fn serve(
    wire: Pin<Box<dyn Wire>>,
    builder: Builder,
    counts: Arc<Counts>,
    behaviour: Behaviour,
) {
    let Ok(mut connection) = builder.handshake::<_, Bytes>(wire).await else { return };
    counts.connections.fetch_add(1, Ordering::SeqCst);
    while let Some(Ok((request, respond))) = connection.accept().await {
        let number = counts.requests.fetch_add(1, Ordering::SeqCst);
        let streams = counts.streams.fetch_add(1, Ordering::SeqCst) + 1;
        counts.peak_streams.fetch_max(streams, Ordering::SeqCst);
        let (counts, answer) = (counts.clone(), behaviour(number));
        tokio::spawn(async move {
            // A client may reset the stream at any time.
            let _ = answer_request(request, respond, answer, &counts).await;
            counts.streams.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

async fn answer_request(
    request: Request<h2::RecvStream>,
    mut respond: SendResponse<Bytes>,
    answer: Answer,
    counts: &Counts,
) -> Result<(), h2::Error> {
    assert_eq!(request.uri().path(), "/");
    let mut body = request.into_body();
    if !matches!(answer, Answer::Never) {
        while let Some(data) = body.data().await {
            let data = data?;
            counts.received.fetch_add(data.len() as u64, Ordering::SeqCst);
            body.flow_control().release_capacity(data.len())?;
        }
    }
    let status = |status: u16| Response::builder().status(status).body(()).unwrap();
    match answer {
        Answer::Status(code) => drop(respond.send_response(status(code), true)?),
        Answer::Reset(reason) => respond.send_reset(reason),
        Answer::Never => {
            std::future::poll_fn(|context| respond.poll_reset(context)).await?;
            counts.cancelled.fetch_add(1, Ordering::SeqCst);
        }
        Answer::Content(mut left) => {
            let mut stream = respond.send_response(status(200), left == 0)?;
            while left > 0 {
                stream.reserve_capacity(left);
                let poll = std::future::poll_fn(|context| stream.poll_capacity(context)).await;
                let Some(capacity) = poll.transpose()? else { break };
                let count = capacity.min(left);
                left -= count;
                stream.send_data(Bytes::from(vec![b'x'; count]), left == 0)?;
            }
        }
    }
    Ok(())
}

/// Starts a server that processes `requests` requests of each connection. It announces then that it goes
/// away, ignores later requests, and answers the others. Returns its URL.
pub fn going_away(requests: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.unwrap();
            thread::spawn(move || {
                let (mut out, mut head) = (Vec::new(), HeadBuffer::new());
                let mut server = Connection::server(Arc::new(Config::default()), &mut out);
                let (mut buffer, mut left) = (vec![0; 16 * 1024], requests);
                if requests == 0 {
                    server.shut_down(&mut out);
                }
                while socket.write_all(&out).is_ok() {
                    out.clear();
                    let Ok(count @ 1..) = socket.read(&mut buffer) else { return };
                    let (mut input, mut begun) = (&buffer[..count], Vec::new());
                    loop {
                        match server.receive(&mut input, &mut head, &mut out) {
                            Ok(Some(Event::Request { stream, .. })) => {
                                begun.push(stream);
                                left -= 1;
                                if left == 0 {
                                    server.shut_down(&mut out);
                                }
                            }
                            Ok(Some(_)) => {}
                            Ok(None) => break,
                            Err(_) => return,
                        }
                    }
                    for stream in begun {
                        server.respond(stream, 200, [("content-length", "0")], true, &mut out);
                    }
                }
            });
        }
    });
    url
}
