//! A TCP proxy with two tasks per connection. Bytes move within the kernel if they are many.
//!
//! `cargo run --example task_proxy -- UPSTREAM_ADDR:PORT [ADDR:PORT [IO]]`

use std::error::Error;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::Duration;

use hearken::io::RelayEnd;
use hearken::task::{self, TcpListener, TcpStream, timeout};

/// Moves all bytes from one stream to the other, and then the end of the stream.
async fn forward(from: TcpStream, to: TcpStream) -> io::Result<()> {
    match from.relay_to(&to, u64::MAX).await.ended {
        RelayEnd::ReceiveFailed(error) | RelayEnd::SendFailed(error) => {
            // The failure of one direction ends the other as well.
            to.reset();
            from.reset();
            Err(error)
        }
        _ => to.shutdown().await,
    }
}

async fn proxy(client: TcpStream, upstream: SocketAddr) -> io::Result<()> {
    let server = timeout(Duration::from_secs(10), TcpStream::connect(upstream)).await??;
    task::spawn(forward(server.clone(), client.clone()));
    forward(client, server).await
}

/// Serves until accepting fails.
pub(crate) async fn serve(listener: TcpListener, upstream: SocketAddr) -> io::Result<()> {
    loop {
        task::spawn(proxy(listener.accept().await?, upstream));
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let upstream = args.next().ok_or("usage: task_proxy UPSTREAM_ADDR:PORT [ADDR:PORT [IO]]")?;
    let upstream: SocketAddr = upstream.parse()?;
    let address: SocketAddr = args.next().unwrap_or_else(|| "127.0.0.1:0".to_owned()).parse()?;
    let io = args.next().unwrap_or_else(|| "auto".to_owned());
    task::block_on(&io, async move {
        let listener = TcpListener::bind(address)?;
        writeln!(io::stdout(), "listening on {}", listener.local_addr()?)?;
        serve(listener, upstream).await
    })??;
    Ok(())
}
