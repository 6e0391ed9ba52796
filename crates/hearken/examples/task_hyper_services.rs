//! The services of hyper's examples "echo", "web_api" and "upgrades" on tasks. The functions of the services are
//! those that run on tokio. Only the lines that listen, connect and spawn differ.
//!
//! `cargo run --features hyper --example task_hyper_services -- [IO [ADDR:PORT]]`

use std::error::Error;
use std::io::{self, Write};
use std::net::SocketAddr;

use bytes::{Buf, Bytes};
use hearken::task::hyper::{TaskTimer, UpgradableStream};
use hearken::task::{self, Tcp, TcpListener, TcpStream};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::header::HeaderValue;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Uri, header};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;
type AnyBody = BoxBody<Bytes, hyper::Error>;

fn full(bytes: impl Into<Bytes>) -> AnyBody {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed()
}

fn empty(status: StatusCode) -> Response<AnyBody> {
    let mut response = Response::new(Empty::new().map_err(|never| match never {}).boxed());
    *response.status_mut() = status;
    response
}

/// Returns the body of a request: as it arrives, in upper case as it arrives, or reversed.
async fn echo(request: Request<Incoming>) -> Result<Response<AnyBody>> {
    let path = request.uri().path().to_owned();
    let body = request.into_body();
    match path.as_str() {
        "/echo" => Ok(Response::new(body.boxed())),
        "/echo/uppercase" => {
            let upper = body.map_frame(|frame| match frame.into_data() {
                Ok(data) => Frame::data(data.to_ascii_uppercase().into()),
                Err(frame) => frame,
            });
            Ok(Response::new(upper.boxed()))
        }
        "/echo/reversed" => {
            // A body of unlimited length would take unlimited memory.
            if body.size_hint().upper().unwrap_or(u64::MAX) > 64 * 1024 {
                return Ok(empty(StatusCode::PAYLOAD_TOO_LARGE));
            }
            let whole = body.collect().await?.to_bytes();
            Ok(Response::new(full(whole.iter().rev().copied().collect::<Vec<_>>())))
        }
        _ => Ok(empty(StatusCode::NOT_FOUND)),
    }
}

/// Sends a request to the server itself, and returns the response as it arrives.
async fn client_response(own: SocketAddr) -> Result<Response<AnyBody>> {
    let uri: Uri = format!("http://{own}/json").parse()?;
    let request = Request::post(uri)
        .header(header::HOST, own.to_string())
        .body(Full::new(Bytes::from_static(br#"{"value":1}"#)))?;
    let stream = TcpStream::connect(own).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
    task::spawn(async move {
        if let Err(error) = connection.await {
            let _ = writeln!(io::stderr(), "connection failed: {error}");
        }
    });
    Ok(Response::new(sender.send_request(request).await?.into_body().boxed()))
}

/// Adds a member to a JSON object.
async fn json_response(request: Request<Incoming>) -> Result<Response<AnyBody>> {
    let whole = request.collect().await?.aggregate();
    let mut data: serde_json::Value = serde_json::from_reader(whole.reader())?;
    data["test"] = "hearken".into();
    let response = Response::builder().header(header::CONTENT_TYPE, "application/json");
    Ok(response.body(full(serde_json::to_string(&data)?))?)
}

/// Switches to a protocol that returns each message in upper case.
fn upgrade(mut request: Request<Incoming>) -> Result<Response<AnyBody>> {
    if !request.headers().contains_key(header::UPGRADE) {
        return Ok(empty(StatusCode::BAD_REQUEST));
    }
    task::spawn(async move {
        if let Err(error) = converse(&mut request).await {
            let _ = writeln!(io::stderr(), "upgrade failed: {error}");
        }
    });
    let mut response = empty(StatusCode::SWITCHING_PROTOCOLS);
    response.headers_mut().insert(header::UPGRADE, HeaderValue::from_static("foobar"));
    Ok(response)
}

/// Waits for the upgrade of a connection, and answers on it until its end.
async fn converse(request: &mut Request<Incoming>) -> Result<()> {
    let upgraded = hyper::upgrade::on(request).await?;
    let parts = upgraded.downcast::<UpgradableStream<Tcp>>();
    let parts = parts.map_err(|_| "another kind of stream")?;
    let (stream, mut received) = (parts.io.into_inner(), parts.read_buf.to_vec());
    loop {
        stream.write_all(&received.to_ascii_uppercase()).await?;
        received.resize(1024, 0);
        let count = stream.read(&mut received).await?;
        if count == 0 {
            return Ok(());
        }
        received.truncate(count);
    }
}

async fn service(request: Request<Incoming>, own: SocketAddr) -> Result<Response<AnyBody>> {
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/client") => client_response(own).await,
        (&Method::GET, "/upgrade") => upgrade(request),
        (&Method::POST, "/json") => json_response(request).await,
        (&Method::POST, _) => echo(request).await,
        _ => Ok(empty(StatusCode::NOT_FOUND)),
    }
}

/// Serves until accepting fails.
pub(crate) async fn serve(listener: TcpListener) -> io::Result<()> {
    let own = listener.local_addr()?;
    loop {
        let stream = listener.accept().await?;
        task::spawn(async move {
            let service = service_fn(move |request| service(request, own));
            let stream = UpgradableStream::new(stream);
            let connection =
                http1::Builder::new().timer(TaskTimer).serve_connection(stream, service);
            if let Err(error) = connection.with_upgrades().await {
                let _ = writeln!(io::stderr(), "error serving connection: {error}");
            }
        });
    }
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let io = args.next().unwrap_or_else(|| "auto".to_owned());
    let address: SocketAddr = args.next().unwrap_or_else(|| "127.0.0.1:1337".to_owned()).parse()?;
    task::block_on(&io, async move {
        let listener = TcpListener::bind(address)?;
        writeln!(io::stdout(), "listening on http://{}", listener.local_addr()?)?;
        serve(listener).await
    })??;
    Ok(())
}
