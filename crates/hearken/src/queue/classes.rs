//! Priority classes of registrations, and the order in which their events are returned.

/// The number of classes.
const CLASSES: usize = 4;

/// The maximum number of events of earlier classes returned while a later class has events.
const MAX_PASSED_OVER: u32 = 16;

/// The priority class of a registration. Events of earlier classes are returned first.
///
/// Later classes do not starve. While a class has events, at most 16 events of earlier classes are
/// returned between two of its own. Three more are possible if several classes have waited that
/// long.
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
    /// Sources that must not wait for others, such as the connection that stops a server.
    pub const CONTROL: Class = Class(0);
    /// Preferred sources, such as listening sockets if new connections come first.
    pub const PREFERRED: Class = Class(1);
    /// The class of registrations without a declared class.
    pub const NORMAL: Class = Class(2);
    /// Sources that tolerate delay.
    pub const BULK: Class = Class(3);
}

impl Default for Class {
    fn default() -> Class {
        Class::NORMAL
    }
}

/// Slots with pending events, by class, in order of arrival.
#[derive(Debug, Default)]
pub(super) struct Pending {
    fifos: [Fifo; CLASSES],
    /// The classes with pending slots, one bit each.
    non_empty: u8,
    /// The number of events of earlier classes returned since the last event of each class.
    passed_over: [u32; CLASSES],
}

/// A queue of slots, each contained at most once. A ring buffer would not help: the queue is
/// emptied before it is filled again.
#[derive(Debug, Default)]
struct Fifo {
    slots: Vec<u32>,
    next: usize,
}

impl Pending {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.non_empty == 0
    }

    #[inline]
    pub(super) fn push(&mut self, class: Class, slot: u32) {
        self.fifos[usize::from(class.0)].slots.push(slot);
        self.non_empty |= 1 << class.0;
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<u32> {
        if self.non_empty == 0 {
            return None;
        }
        let first = self.non_empty.trailing_zeros() as usize;
        let only = self.non_empty & (self.non_empty - 1) == 0;
        let class = if only { first } else { self.select_class(first) };
        let fifo = &mut self.fifos[class];
        let slot = fifo.slots.get(fifo.next).copied();
        fifo.next += 1;
        if fifo.next >= fifo.slots.len() {
            self.clear(class);
        }
        slot
    }

    #[cold]
    fn clear(&mut self, class: usize) {
        self.fifos[class].slots.clear();
        self.fifos[class].next = 0;
        self.non_empty &= !(1 << class);
        self.passed_over[class] = 0;
    }

    /// Selects the latest class that was passed over too often, or else the earliest.
    fn select_class(&mut self, first: usize) -> usize {
        let pending = |class: &usize| self.non_empty & (1 << class) != 0;
        let starved = |class: &usize| pending(class) && self.passed_over[*class] >= MAX_PASSED_OVER;
        let class = (first + 1..CLASSES).rev().find(starved).unwrap_or(first);
        for later in class + 1..CLASSES {
            self.passed_over[later] += u32::from(self.non_empty & (1 << later) != 0);
        }
        self.passed_over[class] = 0;
        class
    }

    /// Removes and returns all slots, in order.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = u32> + use<> {
        self.non_empty = 0;
        let fifos = std::mem::take(&mut self.fifos);
        fifos.into_iter().flat_map(|fifo| fifo.slots.into_iter().skip(fifo.next))
    }
}
