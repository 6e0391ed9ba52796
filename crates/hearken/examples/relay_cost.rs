//! Measures the cost of moving bytes from one connection to another, with `Relay::relay` and with a
//! receive and a send per buffer. It counts the CPU time of the relaying thread. The source and the
//! sink run in other threads.
//!
//!     cargo run --release -p hearken --example relay_cost -- [MECHANISM]

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use hearken::io::readiness::Policy;
use hearken::io::{self as operations, Address, CompletionKind, ListenOptions, Relay, Visitor};
use hearken::{Token, Wakeups};

/// The method of moving messages.
#[derive(Clone, Copy)]
enum Method {
    Relay,
    Copy,
}

struct Measured {
    method: Method,
    length: usize,
    times: u32,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let spec = std::env::args().nth(1).unwrap_or_else(|| "epoll-edge".to_owned());
    println!("{spec}: CPU time and wall time per message in us, and CPU time per GiB in ms");
    for length in [1 << 10, 1 << 12, 1 << 14, 1 << 15, 1 << 16, 1 << 18, 1 << 20, 1 << 24] {
        let times = (((256 << 20) / length) as u32).clamp(16, 4000);
        let methods = [
            ("relay", Method::Relay, 16),
            ("16 KiB", Method::Copy, 16),
            ("64 KiB", Method::Copy, 64),
        ];
        for (name, method, size) in methods {
            let mut policy = Policy::default();
            policy.buffer_size = size << 10;
            let uring_options =
                if spec == "uring" { format!(":size={}", size << 10) } else { String::new() };
            let measured = Measured { method, length, times };
            let spec = format!("{spec}{uring_options}");
            let (cpu, wall) = operations::visit(&spec, &policy, Wakeups::new()?, measured)??;
            let each = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(times);
            println!(
                "{length:>9} B  {name:<7} {:>9.1} {:>9.1} {:>9.0}",
                each(cpu),
                each(wall),
                each(cpu) / 1e3 * f64::from(1 << 30) / length as f64
            );
        }
    }
    Ok(())
}

impl Visitor for Measured {
    type Output = io::Result<(Duration, Duration)>;

    fn visit<I: Relay>(self, _: &'static str, mut io: I) -> Self::Output {
        let Measured { method, length, times } = self;
        let listener =
            io.listen(&Address::Inet(([127, 0, 0, 1], 0).into()), &ListenOptions::default())?;
        io.start(listener);
        let mut source = TcpStream::connect(io.local_addr(listener)?)?;
        let sinks = TcpListener::bind(("127.0.0.1", 0))?;
        let to = io.connect(&sinks.local_addr()?.into(), None)?;
        let mut sink = sinks.accept()?.0;
        let (received, is_received) = mpsc::channel();
        let warm_up = times / 10 + 1;
        let sinks = thread::spawn(move || -> io::Result<()> {
            let mut bytes = vec![0; 1 << 18];
            for _ in 0..times + warm_up {
                let mut remaining = length;
                while remaining > 0 {
                    let max = bytes.len().min(remaining);
                    remaining -= sink.read(&mut bytes[..max])?;
                }
                let _ = received.send(());
            }
            Ok(())
        });
        let sources = thread::spawn(move || -> io::Result<()> {
            let bytes = vec![1; length];
            for _ in 0..times + warm_up {
                source.write_all(&bytes)?;
                let _ = is_received.recv();
            }
            Ok(())
        });
        let mut from = None;
        let mut start = (cpu(), Instant::now());
        let mut warmed_up = false;
        let (mut done, mut moved) = (0, 0);
        while done < times + warm_up {
            if done == warm_up && !std::mem::replace(&mut warmed_up, true) {
                start = (cpu(), Instant::now());
            }
            io.wait(None)?;
            while let Some(completion) = io.next() {
                match completion.kind {
                    CompletionKind::Accepted { token, .. } => {
                        from = Some(token);
                        resume(&mut io, method, token, to, length as u64);
                    }
                    CompletionKind::Received(bytes) => {
                        moved += bytes.len();
                        if !io.send_now(to, &bytes) {
                            io.stop(completion.token);
                        }
                        if moved >= length {
                            moved -= length;
                            done += 1;
                        }
                    }
                    CompletionKind::Sent(Ok(())) => {
                        from.into_iter().for_each(|token| io.start(token));
                    }
                    CompletionKind::Relayed { .. } => {
                        done += 1;
                        resume(&mut io, method, completion.token, to, length as u64);
                    }
                    CompletionKind::Connected(Ok(())) | CompletionKind::End => {}
                    other => return Err(io::Error::other(format!("{other:?}"))),
                }
            }
        }
        let elapsed = (cpu() - start.0, start.1.elapsed());
        drop(io);
        let _ = (sources.join(), sinks.join());
        Ok(elapsed)
    }
}

/// Starts the next transfer.
fn resume(io: &mut impl Relay, method: Method, from: Token, to: Token, max: u64) {
    match method {
        Method::Relay if io.relay(from, to, max) => {}
        _ => io.start(from),
    }
}

/// Returns the CPU time of this thread.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
