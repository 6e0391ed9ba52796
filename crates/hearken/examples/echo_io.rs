//! An echo server on `Io`, written once for every mechanism: `echo_io [MECHANISM [ADDR:PORT]]`.

use std::error::Error;
use std::io::{self, Write};
use std::net::SocketAddr;

use hearken::io::readiness::{Policy, ReadinessIo};
use hearken::io::{Body, Io, ListenOptions, Outgoing, What};
use hearken::mechanism::{self, Open, Visitor};

fn serve(mut io: impl Io, addr: SocketAddr) -> io::Result<()> {
    let listener = io.listen(addr, &ListenOptions::default())?;
    writeln!(io::stdout(), "listening on {}", io.local_addr(listener)?)?;
    io.start(listener);
    loop {
        io.wait(None)?;
        while let Some(completion) = io.next() {
            let on = completion.on;
            match completion.what {
                What::Accepted(connection) => io.start(connection),
                // One message at a time, so that a peer who does not read cannot fill our memory.
                What::Received(bytes) => {
                    io.stop(on);
                    io.send(on, Outgoing { head: bytes, body: Body::None });
                }
                What::Sent(Ok(())) => io.start(on),
                What::End | What::ReceiveFailed(_) | What::Sent(Err(_)) => io.close(on),
                What::AcceptFailed(error) => return Err(error),
                What::Connected(_) | What::Relayed { .. } | What::Deadline | What::Woken => {}
            }
        }
    }
}

/// What is done with the mechanism once its type is known.
struct Serve(SocketAddr);

impl Visitor for Serve {
    type Output = io::Result<()>;

    fn visit<M: Open>(self, mechanism: M) -> io::Result<()> {
        serve(ReadinessIo::new(mechanism, Policy::default())?, self.0)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_else(|| mechanism::AUTO.to_owned());
    let addr = args.next().unwrap_or_else(|| "127.0.0.1:0".to_owned()).parse()?;
    Ok(mechanism::visit(&name, Serve(addr))??)
}
