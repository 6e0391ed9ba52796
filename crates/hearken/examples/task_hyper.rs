//! The server of hyper's "hello" example, on tasks instead of a runtime of tokio.
//!
//! `cargo run --features hyper --example task_hyper -- [IO [ADDR:PORT]]`

use std::convert::Infallible;
use std::error::Error;
use std::io::{self, Write};
use std::net::SocketAddr;

use bytes::Bytes;
use hearken::task::hyper::TaskTimer;
use hearken::task::{self, TcpListener};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};

async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::new(Bytes::from("Hello World!"))))
}

/// Serves until accepting fails.
pub(crate) async fn serve(listener: TcpListener) -> io::Result<()> {
    loop {
        let stream = listener.accept().await?;
        task::spawn(async move {
            let connection =
                http1::Builder::new().timer(TaskTimer).serve_connection(stream, service_fn(hello));
            if let Err(error) = connection.await {
                let _ = writeln!(io::stderr(), "error serving connection: {error}");
            }
        });
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let io = args.next().unwrap_or_else(|| "auto".to_owned());
    let address: SocketAddr = args.next().unwrap_or_else(|| "127.0.0.1:3000".to_owned()).parse()?;
    task::block_on(&io, async move {
        let listener = TcpListener::bind(address)?;
        writeln!(io::stdout(), "listening on http://{}", listener.local_addr()?)?;
        serve(listener).await
    })??;
    Ok(())
}
