//! `hyper-server`: one server of hyper, over the tasks of Hearken and over tokio, to compare their cost
//! per request. `scripts/task-cost` runs it.
//!
//! The service and the settings of the connection are the same. Only the executor, the listener and the
//! timer differ.

use std::convert::Infallible;
use std::error::Error;
use std::io::{self, Write};
use std::net::SocketAddr;

use bytes::Bytes;
use clap::{Parser, ValueEnum};
use hearken::task;
use hearken::task::hyper::TaskTimer;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::rt::{Read, Timer, Write as RtWrite};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};

/// Serves a response of one byte with hyper.
#[derive(Debug, Parser)]
struct Arguments {
    /// Runtime of the server.
    runtime: Runtime,
    /// Mechanism of Hearken's runtime.
    #[arg(long, default_value = "epoll-edge")]
    io: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Runtime {
    /// Tasks of Hearken.
    Hearken,
    /// tokio with one thread.
    Tokio,
}

async fn service(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::new(Bytes::from_static(b"x"))))
}

/// Serves one connection. The end of a connection is not an error of the server.
async fn serve<I>(io: I, timer: impl Timer + Send + Sync + 'static)
where
    I: Read + RtWrite + Unpin + 'static,
{
    let connection = http1::Builder::new().timer(timer).serve_connection(io, service_fn(service));
    let _ = connection.await;
}

fn report(address: SocketAddr) -> io::Result<()> {
    writeln!(io::stdout(), "listening on http://{address}")
}

async fn serve_on_tasks(address: SocketAddr) -> io::Result<()> {
    let listener = task::TcpListener::bind(address)?;
    report(listener.local_addr()?)?;
    loop {
        let stream = listener.accept().await?;
        task::spawn(serve(stream, TaskTimer));
    }
}

async fn serve_on_tokio(address: SocketAddr) -> io::Result<()> {
    let listener = tokio::net::TcpListener::bind(address).await?;
    report(listener.local_addr()?)?;
    loop {
        let (stream, _) = listener.accept().await?;
        // As the streams of Hearken, and the listeners of servers.
        stream.set_nodelay(true)?;
        tokio::spawn(serve(TokioIo::new(stream), TokioTimer::new()));
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let Arguments { runtime, io } = Arguments::parse();
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    match runtime {
        Runtime::Hearken => task::block_on(&io, serve_on_tasks(address))??,
        Runtime::Tokio => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(serve_on_tokio(address))?;
        }
    }
    Ok(())
}
