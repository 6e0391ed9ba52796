//! The table of connections, and the list of idle connections in the order of their last use.

use std::collections::VecDeque;

use hearken::Token;

/// Marks the end of the list of idle connections.
const NONE: u32 = u32::MAX;

/// A connection, with only the data that an idle connection needs.
#[derive(Debug)]
pub(super) struct Connection {
    generation: u32,
    /// Depends on the phase. Idle: previous connection in the list. Active: index of its request.
    /// Lingering: number of discarded bytes. Handler: key of the handler.
    a: u32,
    /// Depends on the phase. Idle: next connection in the list. Handler: route.
    b: u32,
    pub(super) flags: Flags,
    pub(super) phase: Phase,
    /// Number of incomplete sends.
    pub(super) sends: u8,
}

// Idle connections must stay cheap.
const _: () = assert!(size_of::<Connection>() == 16);

/// The phase of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// The slot holds no connection.
    Vacant,
    /// No byte of the next request was received. An HTTP/2 connection has no streams.
    Idle,
    /// A request is being received or answered.
    Active,
    /// An HTTP/2 connection with streams, or with incomplete input or output.
    Streams,
    /// The connection is shut down, and further input is discarded. Closing it immediately could
    /// reset the connection before the client has received the response.
    Lingering,
    /// A connection that a handler opened.
    Handler,
}

bitflags::bitflags! {
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub(super) struct Flags: u16 {
        /// At least one response was sent.
        const SERVED = 1;
        /// The client has closed its sending side.
        const ENDED = 2;
        /// The connection is closed after the response.
        const CLOSE = 4;
        /// The connection lingers before it is closed, because the client may send more.
        const LINGER = 8;
        /// Receiving is paused.
        const PAUSED = 16;
        /// The transport closes the connection itself, after the response.
        const TRANSPORT_CLOSES = 32;
        /// The connection must start with a PROXY protocol header.
        const HEADER = 64;
        /// The transport relays the input without passing it to the front.
        const RELAYED = 128;
        /// The client uses HTTP/2.
        const HTTP2 = 256;
    }
}

/// The owner of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// The front owns client connections.
    Client,
    /// The handler of a route owns the connection and identifies it by this key.
    Handler { key: u32, route: u32 },
}

/// A change of the table of connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TableChange {
    /// A connection of a client or a handler was added.
    Opened(Token),
    /// A connection was removed. It is closed, or the transport closes it.
    Closed(Token),
}

/// All connections, by token slot.
#[derive(Debug)]
pub(super) struct Connections {
    slots: Vec<Connection>,
    /// The first and the last connection in the list of idle connections.
    oldest: u32,
    newest: u32,
    /// The first connections in the list that were used in the last turn and in this one. A request
    /// on them may have arrived that the event loop has not processed yet.
    first_of_last_turn: u32,
    first_of_this_turn: u32,
    /// Number of client connections.
    open: usize,
    /// Changes that the driver has not taken, if it takes them.
    changes: Option<VecDeque<TableChange>>,
}

impl Connections {
    pub(super) fn with_capacity(connections: usize) -> Connections {
        Connections {
            slots: Vec::with_capacity(connections),
            oldest: NONE,
            newest: NONE,
            first_of_last_turn: NONE,
            first_of_this_turn: NONE,
            open: 0,
            changes: None,
        }
    }

    /// Starts to record changes for the driver.
    pub(super) fn record_changes(&mut self) {
        self.changes = Some(VecDeque::new());
    }

    /// Returns whether there are recorded changes.
    #[inline]
    pub(super) fn has_changes(&self) -> bool {
        self.changes.as_ref().is_some_and(|changes| !changes.is_empty())
    }

    /// Removes and returns the oldest recorded change.
    pub(super) fn next_change(&mut self) -> Option<TableChange> {
        self.changes.as_mut().and_then(VecDeque::pop_front)
    }

    fn record(&mut self, change: TableChange) {
        if let Some(changes) = &mut self.changes {
            changes.push_back(change);
        }
    }

    /// Begins a turn of the event loop.
    #[inline]
    pub(super) fn begin_turn(&mut self) {
        self.first_of_last_turn = std::mem::replace(&mut self.first_of_this_turn, NONE);
    }

    /// Returns the number of client connections.
    #[inline]
    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// Returns the number of slots of the table.
    #[cfg(feature = "simulation")]
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Returns a connection that exists.
    #[inline(always)]
    pub(super) fn get(&mut self, token: Token) -> &mut Connection {
        &mut self.slots[token.slot() as usize]
    }

    #[inline]
    pub(super) fn owner(&self, token: Token) -> Owner {
        match self.slots.get(token.slot() as usize) {
            Some(&Connection { phase: Phase::Handler, a: key, b: route, .. }) => {
                Owner::Handler { key, route }
            }
            // Listening sockets have no entry.
            _ => Owner::Client,
        }
    }

    /// Returns whether the connection is open.
    pub(super) fn contains(&self, token: Token) -> bool {
        let connection = self.slots.get(token.slot() as usize);
        connection
            .is_some_and(|it| it.generation == token.generation() && it.phase != Phase::Vacant)
    }

    fn insert(&mut self, token: Token, phase: Phase, a: u32, b: u32) {
        let slot = token.slot() as usize;
        while self.slots.len() <= slot {
            let (flags, sends) = (Flags::empty(), 0);
            let phase = Phase::Vacant;
            self.slots.push(Connection { generation: 0, a: 0, b: 0, flags, phase, sends });
        }
        let generation = token.generation();
        self.slots[slot] = Connection { generation, a, b, flags: Flags::empty(), phase, sends: 0 };
        self.record(TableChange::Opened(token));
    }

    /// Adds an idle client connection.
    pub(super) fn insert_client(&mut self, token: Token) {
        self.insert(token, Phase::Idle, NONE, NONE);
        self.append(token.slot());
        self.open += 1;
    }

    /// Adds a connection that a handler opened.
    pub(super) fn insert_handler(&mut self, token: Token, key: u32, route: u32) {
        self.insert(token, Phase::Handler, key, route);
    }

    /// Removes a connection.
    pub(super) fn remove(&mut self, token: Token) {
        let phase = self.slots[token.slot() as usize].phase;
        match phase {
            Phase::Vacant => return,
            Phase::Idle => self.unlink(token.slot()),
            _ => {}
        }
        self.open -= usize::from(phase != Phase::Handler);
        self.slots[token.slot() as usize].phase = Phase::Vacant;
        self.record(TableChange::Closed(token));
    }

    /// Returns the request index of an active connection.
    #[inline(always)]
    pub(super) fn exchange(&self, token: Token) -> u32 {
        self.slots[token.slot() as usize].a
    }

    /// Makes an idle connection active, with this request index.
    #[inline(always)]
    pub(super) fn activate(&mut self, token: Token, exchange: u32) {
        self.unlink(token.slot());
        let connection = self.get(token);
        connection.phase = Phase::Active;
        connection.a = exchange;
    }

    /// Makes an idle connection one with streams.
    pub(super) fn set_streams(&mut self, token: Token) {
        self.unlink(token.slot());
        self.get(token).phase = Phase::Streams;
    }

    /// Makes a connection idle, or moves an idle one to the end of the list.
    #[inline(always)]
    pub(super) fn set_idle(&mut self, token: Token) {
        let slot = token.slot();
        if self.slots[slot as usize].phase == Phase::Idle {
            if self.newest == slot {
                return;
            }
            self.unlink(slot);
        }
        self.slots[slot as usize].phase = Phase::Idle;
        self.append(slot);
    }

    /// Sets the phase of a connection to lingering.
    pub(super) fn set_lingering(&mut self, token: Token) {
        if self.get(token).phase == Phase::Idle {
            self.unlink(token.slot());
        }
        let connection = self.get(token);
        connection.phase = Phase::Lingering;
        connection.a = 0;
    }

    /// Adds discarded bytes of a lingering connection and returns the total.
    pub(super) fn add_discarded(&mut self, token: Token, bytes: usize) -> usize {
        let connection = self.get(token);
        connection.a = connection.a.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        connection.a as usize
    }

    /// Returns whether any connection is idle.
    #[inline]
    pub(super) fn has_idle(&self) -> bool {
        self.oldest != NONE
    }

    /// Returns the connection that has been idle longest.
    #[inline]
    pub(super) fn oldest_idle(&self) -> Option<&Connection> {
        self.slots.get(self.oldest as usize)
    }

    /// Returns the connection that has been idle longest, unless it was used in the last turn or in
    /// this one.
    pub(super) fn idle_longest(&self) -> Option<Token> {
        let is_recent =
            self.oldest == self.first_of_last_turn || self.oldest == self.first_of_this_turn;
        let oldest = self.slots.get(self.oldest as usize).filter(|_| !is_recent)?;
        Some(Token::new(self.oldest, oldest.generation))
    }

    /// Returns the idle connections from the oldest to the newest, except those that were used in the
    /// last turn or in this one, have not sent a request yet, or have a state of HTTP/2.
    pub(super) fn movable_idle(&self) -> impl Iterator<Item = Token> {
        let ends = [NONE, self.first_of_last_turn, self.first_of_this_turn];
        let next = move |slot: &u32| self.slots.get(*slot as usize).map(|it| it.b);
        let idle = std::iter::successors(Some(self.oldest), next);
        let old = idle.take_while(move |slot| !ends.contains(slot));
        old.filter_map(|slot| {
            let connection = self.slots.get(slot as usize)?;
            let movable = connection.flags & (Flags::SERVED | Flags::HTTP2) == Flags::SERVED;
            movable.then(|| Token::new(slot, connection.generation))
        })
    }

    /// Returns the connections in a phase.
    pub(super) fn in_phase(&self, phase: Phase) -> Vec<Token> {
        let all = self.slots.iter().enumerate();
        let matching = all.filter(|(_, it)| it.phase == phase);
        matching.map(|(slot, it)| Token::new(slot as u32, it.generation)).collect()
    }

    #[inline]
    fn append(&mut self, slot: u32) {
        let newest = std::mem::replace(&mut self.newest, slot);
        if self.first_of_this_turn == NONE {
            self.first_of_this_turn = slot;
        }
        let connection = &mut self.slots[slot as usize];
        connection.a = newest;
        connection.b = NONE;
        match self.slots.get_mut(newest as usize) {
            Some(previous) => previous.b = slot,
            None => self.oldest = slot,
        }
    }

    #[inline]
    fn unlink(&mut self, slot: u32) {
        let Connection { a: previous, b: next, .. } = self.slots[slot as usize];
        if slot == self.first_of_this_turn {
            self.first_of_this_turn = next;
        } else if slot == self.first_of_last_turn {
            self.first_of_last_turn = if next == self.first_of_this_turn { NONE } else { next };
        }
        match self.slots.get_mut(previous as usize) {
            Some(previous) => previous.b = next,
            None => self.oldest = next,
        }
        match self.slots.get_mut(next as usize) {
            Some(following) => following.a = previous,
            None => self.newest = previous,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(slot: u32) -> Token {
        Token::new(slot, slot + 100)
    }

    #[test]
    fn keeps_idle_connections_in_order_of_last_use() {
        let mut table = Connections::with_capacity(0);
        let longest = |table: &mut Connections| {
            (0..2).for_each(|_| table.begin_turn());
            table.idle_longest()
        };
        assert_eq!(longest(&mut table), None);
        (0..4).for_each(|slot| table.insert_client(token(slot)));
        assert_eq!(longest(&mut table), Some(token(0)));
        table.set_idle(token(0));
        table.set_idle(token(0));
        assert_eq!(longest(&mut table), Some(token(1)));
        table.activate(token(1), 7);
        assert_eq!(table.exchange(token(1)), 7);
        table.remove(token(3));
        assert_eq!(longest(&mut table), Some(token(2)));
        table.set_lingering(token(2));
        assert_eq!(longest(&mut table), Some(token(0)));
        table.set_idle(token(1));
        table.remove(token(0));
        assert_eq!(longest(&mut table), Some(token(1)));
        table.remove(token(1));
        table.remove(token(1));
        assert_eq!((longest(&mut table), table.open()), (None, 1));
    }

    #[test]
    fn skips_connections_that_were_used_in_the_last_two_turns() {
        let mut table = Connections::with_capacity(0);
        (0..3).for_each(|slot| table.insert_client(token(slot)));
        assert_eq!(table.idle_longest(), None);
        table.begin_turn();
        assert_eq!(table.idle_longest(), None);
        table.insert_client(token(3));
        table.set_idle(token(0));
        table.begin_turn();
        assert_eq!(table.idle_longest(), Some(token(1)));
        table.activate(token(1), 0);
        table.set_idle(token(2));
        // 3 and 0 were used in the last turn, 2 in this one.
        assert_eq!(table.idle_longest(), None);
        table.remove(token(3));
        table.remove(token(0));
        assert_eq!(table.idle_longest(), None);
        table.begin_turn();
        table.begin_turn();
        assert_eq!(table.idle_longest(), Some(token(2)));
    }

    #[test]
    fn movable_connections_follow_those_that_stay() {
        let mut table = Connections::with_capacity(0);
        (0..5).for_each(|slot| table.insert_client(token(slot)));
        // 0 uses HTTP/2, and 1 has sent no request yet.
        for slot in [0, 2, 3, 4] {
            table.get(token(slot)).flags.insert(Flags::SERVED);
        }
        table.get(token(0)).flags.insert(Flags::HTTP2);
        assert_eq!(table.movable_idle().count(), 0);
        (0..2).for_each(|_| table.begin_turn());
        table.set_idle(token(3));
        assert_eq!(table.movable_idle().collect::<Vec<_>>(), [token(2), token(4)]);
    }

    #[test]
    fn counts_clients_only() {
        let mut table = Connections::with_capacity(0);
        table.insert_handler(token(5), 3, 1);
        assert_eq!((table.open(), table.idle_longest()), (0, None));
        assert_eq!(table.owner(token(5)), Owner::Handler { key: 3, route: 1 });
        table.remove(token(5));
        table.insert_client(token(5));
        assert_eq!((table.open(), table.owner(token(5))), (1, Owner::Client));
    }

    #[test]
    fn records_changes_in_order() {
        let mut table = Connections::with_capacity(0);
        table.insert_client(token(1));
        assert_eq!((table.has_changes(), table.next_change()), (false, None));
        table.record_changes();
        table.remove(token(1));
        table.remove(token(1));
        table.insert_handler(token(1), 0, 0);
        assert!(table.has_changes());
        let changes: Vec<_> = std::iter::from_fn(|| table.next_change()).collect();
        assert_eq!(changes, [TableChange::Closed(token(1)), TableChange::Opened(token(1))]);
        assert!(!table.has_changes());
    }
}
