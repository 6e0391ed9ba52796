//! Parts that clauses share.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use hearken::io::Relay;
use hearken::io::sim::Checked;
use hearken::task::{self, Executor, TcpListener, TcpStream};

use crate::Case;

/// Number of bytes that exceeds the capacity of the sockets.
pub(crate) const LONG: usize = 5 << 20;

/// Maximum time of an operation, which no successful test reaches.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Creates an executor over the `Io` of a case.
pub(crate) fn executor<I: Relay + 'static>(case: &Case<'_, I>) -> Executor<Checked<I>> {
    Executor::new(Checked::new((case.io)()))
}

/// Runs a future as a task of a new executor.
pub(crate) fn run<I: Relay + 'static, F: Future + 'static>(
    case: &Case<'_, I>,
    future: F,
) -> F::Output {
    executor(case).block_on(async { task::timeout(PATIENCE, future).await.unwrap() }).unwrap()
}

/// Returns the loopback address with port 0, which selects a free port.
pub(crate) fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// Returns the connecting and the accepting side of a connection.
pub(crate) async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(loopback()).unwrap();
    pair_of(&listener).await
}

/// Returns both sides of a connection to a listener.
pub(crate) async fn pair_of(listener: &TcpListener) -> (TcpStream, TcpStream) {
    let address = listener.local_addr().unwrap();
    let connecting = task::spawn(TcpStream::connect(address));
    let accepted = listener.accept().await.unwrap();
    (connecting.await.unwrap().unwrap(), accepted)
}

/// Receives all bytes until the end of the stream.
pub(crate) async fn receive_all<N>(stream: &task::Stream<N>) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let bytes = stream.receive().await.unwrap();
        if bytes.is_empty() {
            return all;
        }
        all.extend_from_slice(&bytes);
    }
}

/// Receives as many bytes as `expected` has, and checks that they are equal.
pub(crate) async fn expect<N>(stream: &task::Stream<N>, expected: &[u8]) {
    let mut all = Vec::new();
    let mut buffer = [0; 8192];
    while all.len() < expected.len() {
        let room = buffer.len().min(expected.len() - all.len());
        let count = stream.read(&mut buffer[..room]).await.unwrap();
        assert!(count > 0, "the stream ended after {} bytes", all.len());
        all.extend_from_slice(&buffer[..count]);
    }
    assert!(all == expected, "the received bytes differ");
}

/// Polls a future once and drops it. Returns its output if it was ready.
pub(crate) async fn poll_once<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|context| {
        Poll::Ready(match future.as_mut().poll(context) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    })
    .await
}

/// Returns bytes in which each position is recognisable.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0..length as u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}
