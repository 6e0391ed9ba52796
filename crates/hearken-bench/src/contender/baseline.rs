//! Baseline: the write and the read without event dispatch.

use std::io;
use std::os::fd::OwnedFd;

use crate::measure::Dispatcher;
use crate::pairs::read_byte;

pub(super) struct Baseline {
    pub(super) readers: Vec<OwnedFd>,
}

impl Dispatcher for Baseline {
    #[inline]
    fn dispatch(&mut self, round: &[u32]) -> io::Result<()> {
        for &index in round {
            while !read_byte(&self.readers[index as usize])? {}
        }
        Ok(())
    }
}
