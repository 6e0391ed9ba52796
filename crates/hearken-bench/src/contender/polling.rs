//! polling, in each mode that Linux supports.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;

use polling::{Event, Events, PollMode, Poller};

use super::MAX_EVENTS;
use crate::measure::Dispatcher;
use crate::pairs::read_byte;

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
            // SAFETY: fields are dropped in order, so the poller is dropped before the readers.
            unsafe { poller.add_with_mode(reader, Event::readable(index), mode)? };
        }
        let events = Events::with_capacity(MAX_EVENTS.try_into().map_err(io::Error::other)?);
        Ok(Polling { poller, events, rearms: mode == PollMode::Oneshot, readers })
    }
}

impl Dispatcher for Polling {
    #[inline]
    fn dispatch(&mut self, round: &[u32]) -> io::Result<()> {
        let mut remaining = round.len();
        while remaining > 0 {
            self.events.clear();
            self.poller.wait(&mut self.events, None)?;
            for event in self.events.iter() {
                if event.readable {
                    let reader = &self.readers[event.key];
                    remaining -= usize::from(read_byte(reader)?);
                    if self.rearms {
                        self.poller.modify(reader, Event::readable(event.key))?;
                    }
                }
            }
        }
        Ok(())
    }
}
