//! polling, in each of its modes that Linux has.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;

use polling::{Event, Events, PollMode, Poller};

use super::MAX;
use crate::measure::Contender;
use crate::pairs::take;

pub(super) struct Polling {
    poller: Poller,
    events: Events,
    rearms: bool,
    readers: Vec<OwnedFd>,
}

impl Polling {
    pub(super) fn new(readers: Vec<OwnedFd>, mode: PollMode) -> io::Result<Polling> {
        let poller = Poller::new()?;
        for (index, reader) in readers.iter().enumerate() {
            // SAFETY: the readers are dropped after the poller, by the order of the fields.
            unsafe { poller.add_with_mode(reader, Event::readable(index), mode)? };
        }
        let events = Events::with_capacity(MAX.try_into().map_err(io::Error::other)?);
        Ok(Polling { poller, events, rearms: mode == PollMode::Oneshot, readers })
    }
}

impl Contender for Polling {
    #[inline]
    fn dispatch(&mut self, round: &[u32]) -> io::Result<()> {
        let mut left = round.len();
        while left > 0 {
            self.events.clear();
            self.poller.wait(&mut self.events, None)?;
            for event in self.events.iter() {
                if event.readable {
                    let reader = &self.readers[event.key];
                    left -= usize::from(take(reader)?);
                    if self.rearms {
                        self.poller.modify(reader, Event::readable(event.key))?;
                    }
                }
            }
        }
        Ok(())
    }
}
