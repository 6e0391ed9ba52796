//! The write and the read alone: what every contender pays besides its dispatch.

use std::io;
use std::os::fd::OwnedFd;

use crate::measure::Contender;
use crate::pairs::take;

pub(super) struct Floor {
    pub(super) readers: Vec<OwnedFd>,
}

impl Contender for Floor {
    #[inline]
    fn dispatch(&mut self, round: &[u32]) -> io::Result<()> {
        for &index in round {
            while !take(&self.readers[index as usize])? {}
        }
        Ok(())
    }
}
