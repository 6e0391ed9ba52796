//! The descriptors of one measurement, and the order in which they become ready.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use clap::ValueEnum;
use hearken::descriptors;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use serde::{Deserialize, Serialize};

/// What the descriptors are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Over {
    /// Pairs of Unix stream sockets.
    Sockets,
    /// Pipes.
    Pipes,
}

impl Over {
    /// As on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Over::Sockets => "sockets",
            Over::Pipes => "pipes",
        }
    }
}

/// The ends that are written to, and the order in which that is done.
#[derive(Debug)]
pub(crate) struct Writers {
    ends: Vec<OwnedFd>,
    /// A random permutation, its beginning repeated at the end, so that a round is one slice.
    order: Vec<u32>,
    active: usize,
    base: usize,
}

/// Makes `descriptors` pairs, of which `active` will be written to in a round: the writers, and the
/// ends that are to be watched.
pub(crate) fn make(
    descriptors: usize,
    active: usize,
    over: Over,
) -> io::Result<(Writers, Vec<OwnedFd>)> {
    descriptors::raise_limit();
    let (mut readers, mut ends) = (Vec::new(), Vec::new());
    for _ in 0..descriptors {
        let (reader, writer) = match over {
            Over::Sockets => {
                let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
                socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?
            }
            Over::Pipes => pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC)?,
        };
        readers.push(reader);
        ends.push(writer);
    }
    let mut order: Vec<u32> = (0..descriptors as u32).collect();
    let mut state = 1;
    for i in (1..descriptors).rev() {
        order.swap(i, (next_random(&mut state) % (i as u64 + 1)) as usize);
    }
    order.extend_from_within(..active);
    Ok((Writers { ends, order, active, base: 0 }, readers))
}

/// splitmix64, as in `peers/peer.h`: both visit the descriptors in the same order.
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Writers {
    /// Writes one byte to each of the next active descriptors, and tells which they are.
    #[inline]
    pub(crate) fn write(&mut self) -> io::Result<&[u32]> {
        let round = &self.order[self.base..self.base + self.active];
        for &index in round {
            rustix::io::write(&self.ends[index as usize], b"x")?;
        }
        self.base += self.active;
        if self.base >= self.ends.len() {
            self.base -= self.ends.len();
        }
        Ok(round)
    }

    /// How many descriptors a round makes ready.
    pub(crate) fn active(&self) -> usize {
        self.active
    }
}

/// Reads the byte; tells if there was one. The room is larger than what comes, so that a short read
/// tells those that are edge-triggered that nothing is left.
#[inline]
pub(crate) fn take(from: impl AsFd) -> io::Result<bool> {
    let mut room = [0; 16];
    match rustix::io::read(from, &mut room) {
        Ok(1) => Ok(true),
        Err(Errno::AGAIN) => Ok(false),
        Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(errno) => Err(errno.into()),
    }
}
