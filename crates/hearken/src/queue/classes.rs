//! Classes of registrations, and the order in which their events are given.

/// How many classes there are.
const CLASSES: usize = 4;

/// So many events of earlier classes may be given while one of a later class waits.
const PATIENCE: u32 = 16;

/// The class of a registration: events of an earlier class are given first.
///
/// A later class is not starved: while it has events, at most 16 of earlier classes are given
/// between two of its own, and at most three more where several classes have waited that long.
///
/// ```
/// use hearken::queue::Class;
///
/// assert!(Class::CONTROL < Class::NORMAL);
/// assert_eq!(Class::default(), Class::NORMAL);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Class(u8);

impl Class {
    /// What must not wait for the rest: the connection by which a server is told to stop.
    pub const CONTROL: Class = Class(0);
    /// What brings new work, where new work comes first; or what is paid for.
    pub const PREFERRED: Class = Class(1);
    /// What every registration is that was not said to be anything else.
    pub const NORMAL: Class = Class(2);
    /// What can wait.
    pub const BULK: Class = Class(3);
}

impl Default for Class {
    fn default() -> Class {
        Class::NORMAL
    }
}

/// Slots with something pending, by class, each in the order in which it came.
#[derive(Debug, Default)]
pub(super) struct Pending {
    fifos: [Fifo; CLASSES],
    /// The classes that have any, one bit each.
    waiting: u8,
    /// How many of earlier classes went before, since one of this was given.
    passed: [u32; CLASSES],
}

/// It is emptied before it is filled again, so that a ring would gain nothing. A slot is in it once
/// at most.
#[derive(Debug, Default)]
struct Fifo {
    slots: Vec<u32>,
    given: usize,
}

impl Pending {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    #[inline]
    pub(super) fn push(&mut self, class: Class, slot: u32) {
        self.fifos[usize::from(class.0)].slots.push(slot);
        self.waiting |= 1 << class.0;
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<u32> {
        if self.waiting == 0 {
            return None;
        }
        let first = self.waiting.trailing_zeros() as usize;
        let only = self.waiting & (self.waiting - 1) == 0;
        let class = if only { first } else { self.next_of_several(first) };
        let fifo = &mut self.fifos[class];
        let slot = fifo.slots.get(fifo.given).copied();
        fifo.given += 1;
        if fifo.given >= fifo.slots.len() {
            self.emptied(class);
        }
        slot
    }

    #[cold]
    fn emptied(&mut self, class: usize) {
        self.fifos[class].slots.clear();
        self.fifos[class].given = 0;
        self.waiting &= !(1 << class);
        self.passed[class] = 0;
    }

    /// The class whose turn it is: the latest that has waited too long, or else the earliest.
    fn next_of_several(&mut self, first: usize) -> usize {
        let waits = |class: &usize| self.waiting & (1 << class) != 0;
        let starved = |class: &usize| waits(class) && self.passed[*class] >= PATIENCE;
        let class = (first + 1..CLASSES).rev().find(starved).unwrap_or(first);
        for later in class + 1..CLASSES {
            self.passed[later] += u32::from(self.waiting & (1 << later) != 0);
        }
        self.passed[class] = 0;
        class
    }

    /// All that there are, in order.
    pub(super) fn take(&mut self) -> impl Iterator<Item = u32> + use<> {
        self.waiting = 0;
        let fifos = std::mem::take(&mut self.fifos);
        fifos.into_iter().flat_map(|fifo| fifo.slots.into_iter().skip(fifo.given))
    }
}
