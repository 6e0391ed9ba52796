//! Listeners over TCP and Unix sockets.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::task::{Context, Poll};

use super::connection::Connection;
use super::core::{self, State};
use super::source::{Flags, closed};
use super::stream::{Stream, Tcp, Unix};
use crate::event::Token;
use crate::io::{Address, ListenOptions};

/// A listener over TCP.
pub type TcpListener = Listener<Tcp>;

/// A listener over a Unix socket.
pub type UnixListener = Listener<Unix>;

/// A listener. It accepts only while a task waits for a connection.
pub struct Listener<N> {
    connection: Connection,
    kind: PhantomData<fn() -> N>,
}

impl TcpListener {
    /// Listens on an address. Port 0 selects a free port.
    ///
    /// # Errors
    /// Errors of the kernel: address in use or not available, permission denied, out of
    /// descriptors.
    ///
    /// # Panics
    /// Panics outside of a task.
    pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
        TcpListener::bind_with(address, &ListenOptions::default())
    }

    /// Listens on an address like [`bind`](TcpListener::bind), with options.
    ///
    /// # Errors
    /// As [`bind`](TcpListener::bind).
    ///
    /// # Panics
    /// Panics outside of a task.
    pub fn bind_with(address: SocketAddr, options: &ListenOptions) -> io::Result<TcpListener> {
        Listener::open(&address.into(), options)
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.connection.with_io(|io, token| io.local_addr(token))
    }
}

impl UnixListener {
    /// Listens on a path, at which it creates a file. The file remains after closing.
    ///
    /// # Errors
    /// Errors of the kernel: the path exists, permission denied, out of descriptors.
    ///
    /// # Panics
    /// Panics outside of a task.
    pub fn bind(path: &Path) -> io::Result<UnixListener> {
        Listener::open(&path.into(), &ListenOptions::default())
    }
}

impl<N> Listener<N> {
    fn open(address: &Address, options: &ListenOptions) -> io::Result<Listener<N>> {
        let core = core::current();
        let token = core.state.borrow_mut().io.listen(address, options)?;
        let connection = Connection::new(core, token, Flags::LISTENER);
        Ok(Listener { connection, kind: PhantomData })
    }

    /// Waits for a connection. Dropping the future loses no connection.
    ///
    /// # Errors
    /// Errors of the kernel: out of descriptors or memory. The next call tries again. `Stopping` in
    /// an [`Other`](io::ErrorKind::Other) error when the executor [stops](super::Stopper).
    pub async fn accept(&self) -> io::Result<Stream<N>> {
        let token = poll_fn(|context| self.poll_accept(context)).await?;
        let core = Rc::clone(&self.connection.core);
        Ok(Stream::new(Connection::new(core, token, Flags::empty())))
    }

    fn poll_accept(&self, context: &Context<'_>) -> Poll<io::Result<Token>> {
        let state = &mut *self.connection.core.state.borrow_mut();
        let State { sources, foreign, io, stopping, .. } = state;
        let token = self.connection.token;
        let Some(source) = sources.get(token) else { return Poll::Ready(Err(closed())) };
        if let Some(accepted) = source.take_extra(|extra| extra.accepted.pop_front()) {
            return Poll::Ready(Ok(accepted));
        }
        if let Some(error) = source.take_extra(|extra| extra.receive_error.take()) {
            return Poll::Ready(Err(error));
        }
        if *stopping {
            return Poll::Ready(Err(io::Error::other(super::Stopping)));
        }
        if !source.flags.contains(Flags::STARTED) {
            source.flags.insert(Flags::STARTED);
            io.start(token);
        }
        source.wait_to_read(context, foreign)
    }
}

impl<N> fmt::Debug for Listener<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Listener({:?})", self.connection)
    }
}
