//! mio: registered once, edge-triggered. The token is the index of the reader.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use super::MAX_EVENTS;
use crate::measure::Dispatcher;
use crate::pairs::read_byte;

pub(super) struct Mio {
    poll: Poll,
    events: Events,
    readers: Vec<OwnedFd>,
}

impl Mio {
    pub(super) fn new(readers: Vec<OwnedFd>) -> io::Result<Mio> {
        let poll = Poll::new()?;
        for (index, reader) in readers.iter().enumerate() {
            let mut source = SourceFd(&reader.as_raw_fd());
            poll.registry().register(&mut source, Token(index), Interest::READABLE)?;
        }
        Ok(Mio { poll, events: Events::with_capacity(MAX_EVENTS), readers })
    }
}

impl Dispatcher for Mio {
    #[inline]
    fn dispatch(&mut self, round: &[u32]) -> io::Result<()> {
        let mut remaining = round.len();
        while remaining > 0 {
            self.poll.poll(&mut self.events, None)?;
            for event in &self.events {
                if event.is_readable() {
                    remaining -= usize::from(read_byte(&self.readers[event.token().0])?);
                }
            }
        }
        Ok(())
    }
}
