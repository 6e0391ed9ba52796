//! An echo server with one task per connection, over any mechanism or io_uring.
//!
//! `cargo run --example task_echo -- [IO [ADDR:PORT]]`

use std::error::Error;
use std::io::{self, Write};
use std::net::SocketAddr;

use hearken::task::{self, TcpListener, TcpStream};

async fn echo(stream: TcpStream) -> io::Result<()> {
    loop {
        let bytes = stream.receive().await?;
        if bytes.is_empty() {
            return Ok(());
        }
        // A task that waits for a slow peer reads nothing, so its memory is limited.
        stream.write_all(&bytes).await?;
    }
}

/// Serves until accepting fails.
pub(crate) async fn serve(listener: TcpListener) -> io::Result<()> {
    loop {
        task::spawn(echo(listener.accept().await?));
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let io = args.next().unwrap_or_else(|| "auto".to_owned());
    let address: SocketAddr = args.next().unwrap_or_else(|| "127.0.0.1:0".to_owned()).parse()?;
    task::block_on(&io, async move {
        let listener = TcpListener::bind(address)?;
        writeln!(io::stdout(), "listening on {}", listener.local_addr()?)?;
        serve(listener).await
    })??;
    Ok(())
}
