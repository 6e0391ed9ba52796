//! An echo server on `Io`, over any mechanism.
//!
//! `cargo run --example echo_io -- [MECHANISM [ADDR:PORT]]`

use std::error::Error;
use std::io::{self, Write};

use hearken::io::readiness::{Policy, ReadinessIo};
use hearken::io::{Address, Body, CompletionKind, Io, ListenOptions, Outgoing};
use hearken::mechanism::{self, Open, Visitor};

fn serve(mut io: impl Io, address: &Address) -> io::Result<()> {
    let listener = io.listen(address, &ListenOptions::default())?;
    writeln!(io::stdout(), "listening on {}", io.local_addr(listener)?)?;
    io.start(listener);
    loop {
        io.wait(None)?;
        while let Some(completion) = io.next() {
            let token = completion.token;
            match completion.kind {
                CompletionKind::Accepted { token: connection, .. } => io.start(connection),
                // Reading pauses until the bytes are sent: a peer that does not read uses no memory.
                CompletionKind::Received(bytes) => {
                    io.stop(token);
                    io.send(token, Outgoing { head: bytes, body: Body::None });
                }
                CompletionKind::Sent(Ok(())) => io.start(token),
                CompletionKind::End
                | CompletionKind::ReceiveFailed(_)
                | CompletionKind::Sent(Err(_)) => io.close(token),
                CompletionKind::AcceptFailed(error) => return Err(error),
                _ => {}
            }
        }
    }
}

/// Serves at an address with the mechanism that `visit` selects.
struct Serve(Address);

impl Visitor for Serve {
    type Output = io::Result<()>;

    fn visit<M: Open>(self, mechanism: M) -> io::Result<()> {
        serve(ReadinessIo::new(mechanism, Policy::default())?, &self.0)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_else(|| mechanism::AUTO.to_owned());
    let addr = args.next().unwrap_or_else(|| "127.0.0.1:0".to_owned()).parse()?;
    Ok(mechanism::visit(&name, Serve(addr))??)
}
