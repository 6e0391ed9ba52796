//! Descriptors of one measurement and the order in which they become ready.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use clap::ValueEnum;
use hearken::descriptors;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use serde::{Deserialize, Serialize};

/// The type of the descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DescriptorType {
    /// Pairs of Unix stream sockets.
    Sockets,
    /// Pipes.
    Pipes,
}

impl DescriptorType {
    /// Returns the name used on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            DescriptorType::Sockets => "sockets",
            DescriptorType::Pipes => "pipes",
        }
    }
}

/// The write ends and the order in which they are written to.
#[derive(Debug)]
pub(crate) struct Writers {
    ends: Vec<OwnedFd>,
    /// Random permutation whose beginning is repeated at the end, so that each round is one slice.
    order: Vec<u32>,
    active: usize,
    base: usize,
}

/// Creates `descriptors` pairs, of which each round writes to `active`. Returns the write ends and the
/// read ends.
pub(crate) fn create(
    descriptors: usize,
    active: usize,
    descriptor_type: DescriptorType,
) -> io::Result<(Writers, Vec<OwnedFd>)> {
    descriptors::raise_limit();
    let (mut readers, mut ends) = (Vec::new(), Vec::new());
    for _ in 0..descriptors {
        let (reader, writer) = match descriptor_type {
            DescriptorType::Sockets => {
                let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
                socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?
            }
            DescriptorType::Pipes => pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC)?,
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

/// Returns the next number of splitmix64, as in `peers/peer.h`, so that both use the same order.
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Writers {
    /// Writes one byte to each of the next active descriptors and returns their indices.
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

    /// Returns the number of descriptors that each round makes ready.
    pub(crate) fn active(&self) -> usize {
        self.active
    }
}

/// Reads one byte. Returns whether there was one.
///
/// The buffer is larger than the data, so that edge-triggered contenders learn from the short read that
/// the descriptor is drained.
#[inline]
pub(crate) fn read_byte(from: impl AsFd) -> io::Result<bool> {
    let mut buffer = [0; 16];
    match rustix::io::read(from, &mut buffer) {
        Ok(1) => Ok(true),
        Err(Errno::AGAIN) => Ok(false),
        Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(errno) => Err(errno.into()),
    }
}
