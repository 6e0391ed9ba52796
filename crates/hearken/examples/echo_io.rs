//! An echo server on `Io`, written once for every mechanism: `echo_io [MECHANISM [ADDR:PORT]]`.

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
            let on = completion.token;
            match completion.kind {
                CompletionKind::Accepted { token: connection, .. } => io.start(connection),
                // One message at a time, so that a peer who does not read cannot fill our memory.
                CompletionKind::Received(bytes) => {
                    io.stop(on);
                    io.send(on, Outgoing { head: bytes, body: Body::None });
                }
                CompletionKind::Sent(Ok(())) => io.start(on),
                CompletionKind::End
                | CompletionKind::ReceiveFailed(_)
                | CompletionKind::Sent(Err(_)) => io.close(on),
                CompletionKind::AcceptFailed(error) => return Err(error),
                _ => {}
            }
        }
    }
}

/// What is done with the mechanism once its type is known.
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
