//! The runtime traits of hyper: streams, timers and tasks.
//!
//! A [`TcpStream`](super::TcpStream) is passed to hyper as it is, or as an [`UpgradableStream`].

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::rt::{Executor, Read, ReadBufCursor, Timer, Write};
use send_wrapper::SendWrapper;

use super::stream::Stream;
use super::time;

impl<N> Read for Stream<N> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.connection().poll_receive(context, |received| {
            let count = received.len().min(buffer.remaining());
            buffer.put_slice(&received[..count]);
            received.consume(count);
        })
    }
}

impl<N> Write for Stream<N> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.connection().poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.connection().poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.connection().poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.connection().poll_shutdown(context)
    }
}

/// A stream of a connection that hyper may upgrade: `with_upgrades` requires streams to be `Send`. It
/// stays on its thread. Other threads that use or drop it panic.
#[derive(Debug)]
pub struct UpgradableStream<N>(SendWrapper<Stream<N>>);

impl<N> UpgradableStream<N> {
    /// Wraps a stream.
    pub fn new(stream: Stream<N>) -> UpgradableStream<N> {
        UpgradableStream(SendWrapper::new(stream))
    }

    /// Returns the stream, for example from an upgraded connection.
    pub fn into_inner(self) -> Stream<N> {
        self.0.take()
    }

    fn stream(self: Pin<&mut Self>) -> Pin<&mut Stream<N>> {
        Pin::new(&mut *Pin::into_inner(self).0)
    }
}

impl<N> Read for UpgradableStream<N> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream().poll_read(context, buffer)
    }
}

impl<N> Write for UpgradableStream<N> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(context)
    }
}

/// Runs hyper's futures as tasks of the executor whose task calls. They need not be `Send`.
#[derive(Clone, Copy, Default, Debug)]
pub struct TaskExecutor;

impl<F: Future + 'static> Executor<F> for TaskExecutor {
    fn execute(&self, future: F) {
        drop(super::spawn(future));
    }
}

/// The timers of the executor whose task calls. A timer that another thread uses panics.
#[derive(Clone, Copy, Default, Debug)]
pub struct TaskTimer;

impl Timer for TaskTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(TimerSleep(SendWrapper::new(time::sleep(duration))))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
        self.sleep(deadline.saturating_duration_since(Instant::now()))
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn hyper::rt::Sleep>>, deadline: Instant) {
        *sleep = self.sleep_until(deadline);
    }
}

/// A sleep that hyper may require to be `Send`, although it stays on its thread.
struct TimerSleep(SendWrapper<time::Sleep>);

impl Future for TimerSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut *self.0).poll(context)
    }
}

impl hyper::rt::Sleep for TimerSleep {}
