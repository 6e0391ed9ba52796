//! Moving bytes from one connection to another, as far as that goes without waiting.
//!
//! Much is moved by splice(2), within the kernel; little by a receive and a send, which are two calls
//! where splice(2) takes more (`examples/relay_cost.rs` measures from where on it pays). So whenever
//! there is something it begins with a receive, and if that comes back full, splices follow.
//!
//! What was received and has no room to be sent is kept, 64 KiB at most: in the pipe, which is the
//! relay's for as long as there is something in it, or copied, if it was not spliced. A relay that waits
//! for bytes has neither. Where there is no pipe to be had it does without.
//!
//! The receive that ends a series of splices is not in vain: splice(2) does not come past urgent data.

use std::collections::HashMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags};
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, splice};

use super::RelayEnd;
use crate::event::Token;

/// What is received before it is spliced: less is cheaper if it is copied.
const LITTLE: usize = 64 * 1024;
/// What a pipe holds, unless its user has too many.
const PIPE: usize = 64 * 1024;
/// How many empty pipes are kept for the next relays.
const KEPT: usize = 16;

/// The relays of an [`Io`](super::Io).
#[derive(Debug, Default)]
pub(super) struct Relays {
    /// By the slot of where the bytes come from.
    all: HashMap<u32, Relay>,
    /// By the slot of where they go: where they come from.
    sources: HashMap<u32, Token>,
    tools: Tools,
}

/// What relays share.
#[derive(Debug, Default)]
struct Tools {
    pipes: Vec<Pipe>,
    /// Holds nothing but during a call.
    scratch: Vec<u8>,
}

#[derive(Debug)]
struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
}

/// One relay.
#[derive(Debug)]
pub(super) struct Relay {
    pub(super) to: Token,
    /// Bytes that are to be received, and that were given away.
    left: u64,
    pub(super) moved: u64,
    /// What was received and is to be given away: so many bytes in the pipe, or those from `start` on.
    piped: usize,
    pipe: Option<Pipe>,
    rest: Vec<u8>,
    start: usize,
    /// There is much: it is spliced.
    splices: bool,
    /// Its sockets know splice(2), as far as it was tried.
    can_splice: bool,
    /// A receive may succeed without another event.
    pub(super) readable: bool,
    /// It would not: the last has met `EAGAIN`.
    pub(super) blocks: bool,
}

/// Why it goes no further.
pub(super) enum Step {
    /// It waits for something to be received.
    Bytes,
    /// It waits for room to send.
    Room,
    /// It has had its share.
    Share,
    Ended(RelayEnd),
}

/// What of a relay's two connections matters to it, and how many bytes it may move now.
pub(super) struct Now<'a> {
    pub(super) from: BorrowedFd<'a>,
    pub(super) to: BorrowedFd<'a>,
    pub(super) share: usize,
    /// A short receive is not the last.
    pub(super) ending: bool,
}

impl Relays {
    pub(super) fn begin(&mut self, from: Token, to: Token, most: u64) {
        self.sources.insert(to.slot(), from);
        let relay = Relay {
            to,
            left: most,
            moved: 0,
            piped: 0,
            pipe: None,
            rest: Vec::new(),
            start: 0,
            splices: false,
            can_splice: true,
            readable: true,
            blocks: false,
        };
        self.all.insert(from.slot(), relay);
    }

    /// That which receives from a socket.
    pub(super) fn get(&mut self, from: Token) -> Option<&mut Relay> {
        self.all.get_mut(&from.slot())
    }

    /// How much it has moved.
    pub(super) fn moved(&self, from: Token) -> u64 {
        self.all.get(&from.slot()).map_or(0, |relay| relay.moved)
    }

    /// From where a socket is sent to.
    pub(super) fn source(&self, to: Token) -> Option<Token> {
        self.sources.get(&to.slot()).copied()
    }

    /// Ends that which receives from a socket. What it holds is lost.
    pub(super) fn end(&mut self, from: Token) -> Option<Relay> {
        let mut relay = self.all.remove(&from.slot())?;
        self.sources.remove(&relay.to.slot());
        relay.put_away(&mut self.tools);
        Some(relay)
    }

    /// Goes on with that which receives from a socket; `now.share` is less by what it has received.
    pub(super) fn go_on(&mut self, from: Token, now: &mut Now<'_>) -> Option<Step> {
        let relay = self.all.get_mut(&from.slot())?;
        Some(relay.go_on(&mut self.tools, now))
    }
}

impl Relay {
    fn go_on(&mut self, tools: &mut Tools, now: &mut Now<'_>) -> Step {
        loop {
            match self.give(now.to) {
                Ok(()) => {}
                Err(Errno::AGAIN) => return Step::Room,
                Err(errno) => return Step::Ended(RelayEnd::SendFailed(errno.into())),
            }
            if self.left == 0 {
                return Step::Ended(RelayEnd::Most);
            }
            if !self.readable {
                self.put_away(tools);
                return Step::Bytes;
            }
            if now.share == 0 {
                return Step::Share;
            }
            let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(now.share);
            let received = if self.splices && self.has_pipe(tools) {
                self.splice(now.from, most)
            } else {
                self.receive(tools, now, most)
            };
            match received {
                Ok(0) => return Step::Ended(RelayEnd::End),
                Ok(count) => {
                    self.left -= count as u64;
                    now.share -= count;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if self.splices => self.splices = false,
                Err(Errno::AGAIN) => (self.readable, self.blocks) = (false, true),
                Err(Errno::INVAL) if self.splices => {
                    (self.splices, self.can_splice) = (false, false);
                }
                Err(errno) => return Step::Ended(RelayEnd::ReceiveFailed(errno.into())),
            }
        }
    }

    /// Gives away what it holds.
    fn give(&mut self, to: BorrowedFd<'_>) -> Result<(), Errno> {
        while self.piped > 0
            && let Some(pipe) = &self.pipe
        {
            let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
            // Without MORE: nobody knows when more comes, and the last of it is not to be held back.
            match splice(&pipe.read, None, to, None, self.piped, flags) {
                Ok(0) => return Err(Errno::PIPE),
                Ok(count) => {
                    self.piped = self.piped.saturating_sub(count);
                    self.moved += count as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        while self.start < self.rest.len() {
            let count = send(to, &self.rest[self.start..])?;
            self.start += count;
            self.moved += count as u64;
        }
        if self.start > 0 {
            (self.rest, self.start) = (Vec::new(), 0);
        }
        Ok(())
    }

    /// Moves up to `most` bytes into the empty pipe.
    fn splice(&mut self, from: BorrowedFd<'_>, most: usize) -> Result<usize, Errno> {
        let pipe = self.pipe.as_ref().ok_or(Errno::INVAL)?;
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        self.piped = splice(from, None, &pipe.write, None, most.min(PIPE), flags)?;
        Ok(self.piped)
    }

    /// Receives up to `most` bytes, and sends what can be sent.
    fn receive(&mut self, tools: &mut Tools, now: &Now<'_>, most: usize) -> Result<usize, Errno> {
        tools.scratch.resize(LITTLE, 0);
        let room = most.min(LITTLE);
        let scratch = &mut tools.scratch[..room];
        let (count, _) = net::recv(now.from, &mut *scratch, RecvFlags::empty())?;
        if count == LITTLE {
            self.splices = self.can_splice;
        }
        if count < room && !now.ending {
            self.readable = false;
        }
        // What failed or would block is found to do so again, where it is dealt with.
        let sent = if count == 0 { 0 } else { send(now.to, &scratch[..count]).unwrap_or(0) };
        self.moved += sent as u64;
        self.rest.extend_from_slice(&scratch[sent..count]);
        Ok(count)
    }

    /// Sees to it that it has a pipe; if none is to be had it does without.
    fn has_pipe(&mut self, tools: &mut Tools) -> bool {
        if self.pipe.is_none() {
            self.pipe = tools.pipes.pop().or_else(|| {
                let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
                Some(Pipe { read, write })
            });
            self.splices = self.pipe.is_some();
        }
        self.splices
    }

    /// Gives the pipe to the next, if it is empty.
    fn put_away(&mut self, tools: &mut Tools) {
        if let Some(pipe) = self.pipe.take()
            && self.piped == 0
            && tools.pipes.len() < KEPT
        {
            tools.pipes.push(pipe);
        }
    }
}

fn send(to: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, Errno> {
    loop {
        match net::send(to, bytes, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// What ends a relay whose other side was closed.
pub(super) fn was_closed() -> RelayEnd {
    RelayEnd::SendFailed(io::ErrorKind::NotConnected.into())
}
