//! Workers that hand connections to one another.
//!
//! A [`Group`] knows how many connections each of its members has. A thread hands a connection to a
//! member through the member's inbox. The members and the [dispatcher](super::dispatcher) share one
//! descriptor table.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use hearken::io::StreamSocket;
use hearken::timer::Time;

use super::metrics::{Error, WorkerMetrics};
use super::wakers::Wakers;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, MutexGuard, fence};

/// Time after which a thread without a connection ends, if the group starts threads on demand.
const SPARE_TIME: Duration = Duration::from_secs(10);

/// Marks a member without an idle connection.
const NEVER: u64 = u64::MAX;

/// A connection that one thread hands to another.
#[derive(Debug)]
pub(crate) struct HandedOver {
    pub(crate) socket: StreamSocket,
    /// The client's address, if addresses are needed.
    pub(crate) peer: Option<SocketAddr>,
    /// Whether another member has answered requests on the connection, which is idle.
    pub(crate) is_served: bool,
}

/// The members of a group, by worker index.
#[derive(Debug)]
pub(crate) struct Group {
    members: Box<[Member]>,
    /// Maximum number of connections of each member.
    capacity: u32,
    wakers: Wakers,
    /// Number of connections of all members.
    total: AtomicU64,
    /// Whether the dispatcher waits until a member can take a connection.
    is_awaited: AtomicBool,
    /// Members whose threads have ended and were not joined yet.
    ended: Mutex<Vec<usize>>,
}

#[derive(Debug)]
struct Member {
    /// Number of connections, including those in the inbox.
    load: AtomicU32,
    /// Time in nanoseconds since which the member has had an idle connection, or [`NEVER`].
    idle_since: AtomicU64,
    /// Time in nanoseconds at which the last connection was handed to the member.
    handed_at: AtomicU64,
    /// Whether a thread takes connections from the inbox. Changes while the inbox is locked.
    is_running: AtomicBool,
    inbox: Mutex<Inbox>,
}

#[derive(Debug, Default)]
struct Inbox {
    connections: Vec<HandedOver>,
    /// Whether the member is asked to close an idle connection.
    must_evict: bool,
}

/// Whether a member has an idle connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Idle {
    /// All connections have a request in progress.
    None,
    /// The connection that has been idle longest has not sent a request yet.
    New,
    /// The connection that has been idle longest was idle, or became so, in this turn.
    Served,
}

/// The member to which a connection is handed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Choice {
    /// A running member below its capacity.
    Running(usize),
    /// A member without a thread.
    Stopped(usize),
    /// A member at its capacity with an idle connection, which it closes.
    Idle(usize),
}

impl Choice {
    /// Returns the index of the member.
    pub(crate) fn member(self) -> usize {
        let (Choice::Running(index) | Choice::Stopped(index) | Choice::Idle(index)) = self;
        index
    }
}

impl Group {
    /// Creates a group of `members` members without threads, each for up to `capacity` connections.
    /// The waker after those of the members is the dispatcher's.
    pub(crate) fn new(members: usize, capacity: usize, wakers: Wakers) -> Arc<Group> {
        let member = || Member {
            load: AtomicU32::new(0),
            idle_since: AtomicU64::new(NEVER),
            handed_at: AtomicU64::new(0),
            is_running: AtomicBool::new(false),
            inbox: Mutex::new(Inbox::default()),
        };
        Arc::new(Group {
            members: (0..members).map(|_| member()).collect(),
            capacity: u32::try_from(capacity).unwrap_or(u32::MAX),
            wakers,
            total: AtomicU64::new(0),
            is_awaited: AtomicBool::new(false),
            ended: Mutex::new(Vec::new()),
        })
    }

    /// Returns the number of connections of all members.
    pub(crate) fn open(&self) -> usize {
        self.total.load(Ordering::Relaxed) as usize
    }

    /// Chooses a member for a new connection, in O(members): a running one without connections, then
    /// one without a thread, then the running one with the fewest, then the one with the longest idle
    /// connection. Returns `None` if all members are at their capacity and none has an idle connection.
    pub(crate) fn choose(&self) -> Option<Choice> {
        let (mut running, mut stopped) = (None, None);
        let mut least = self.capacity;
        for (index, member) in self.members.iter().enumerate() {
            if !member.is_running.load(Ordering::Relaxed) {
                stopped = stopped.or(Some(Choice::Stopped(index)));
                continue;
            }
            let load = member.load.load(Ordering::Relaxed);
            if load < least {
                (running, least) = (Some(Choice::Running(index)), load);
                if load == 0 {
                    return running;
                }
            }
        }
        stopped.or(running).or_else(|| self.longest_idle().map(Choice::Idle))
    }

    /// Returns the member with the longest idle connection, unless it is closing one already.
    fn longest_idle(&self) -> Option<usize> {
        let since = |member: &Member| {
            let is_closing = member.load.load(Ordering::Relaxed) > self.capacity;
            if is_closing { NEVER } else { member.idle_since.load(Ordering::Relaxed) }
        };
        let longest = self.members.iter().map(since).enumerate().min_by_key(|&(_, since)| since);
        longest.filter(|&(_, since)| since != NEVER).map(|(index, _)| index)
    }

    /// Returns whether a member has an idle connection, in O(members).
    pub(crate) fn has_idle(&self) -> bool {
        self.longest_idle().is_some()
    }

    /// Sets whether members wake the dispatcher when they can take another connection.
    pub(crate) fn set_awaited(&self, is_awaited: bool) {
        self.is_awaited.store(is_awaited, Ordering::Relaxed);
        // Either the dispatcher sees a change of a member, or the member sees that it is awaited.
        fence(Ordering::SeqCst);
    }

    /// Hands a connection to a member. Returns whether the member has a thread.
    pub(crate) fn hand_over(&self, now: Time, index: usize, connection: HandedOver) -> bool {
        let member = &self.members[index];
        let mut inbox = lock(&member.inbox);
        member.handed_at.store(now.as_nanos(), Ordering::Relaxed);
        let is_first = inbox.connections.is_empty();
        inbox.connections.push(connection);
        member.load.fetch_add(1, Ordering::Relaxed);
        self.total.fetch_add(1, Ordering::Relaxed);
        let is_running = member.is_running.load(Ordering::Relaxed);
        drop(inbox);
        if is_first && is_running {
            self.wakers.wake(index);
        }
        is_running
    }

    /// Makes the member with the longest idle connection close it.
    pub(crate) fn evict(&self) {
        if let Some(index) = self.longest_idle() {
            lock(&self.members[index].inbox).must_evict = true;
            self.wakers.wake(index);
        }
    }

    /// Drops the connections in the inbox of a member without a thread.
    pub(crate) fn discard(&self, index: usize) {
        let member = &self.members[index];
        let waiting = std::mem::take(&mut lock(&member.inbox).connections);
        self.subtract(member, waiting.len() as u32);
    }

    /// Returns a member whose thread has ended. Returns each end once.
    pub(crate) fn take_ended(&self) -> Option<usize> {
        lock(&self.ended).pop()
    }

    /// Returns whether a thread takes connections from the inbox of a member.
    pub(crate) fn is_running(&self, index: usize) -> bool {
        self.members[index].is_running.load(Ordering::Relaxed)
    }

    /// Returns whether the inbox of a member has connections.
    pub(crate) fn has_waiting(&self, index: usize) -> bool {
        !lock(&self.members[index].inbox).connections.is_empty()
    }

    /// Wakes a member if its inbox has connections.
    pub(crate) fn wake_if_waiting(&self, index: usize) {
        if self.has_waiting(index) {
            self.wakers.wake(index);
        }
    }

    /// Wakes all members.
    pub(crate) fn wake_all(&self) {
        (0..self.members.len()).for_each(|index| self.wakers.wake(index));
    }

    /// Wakes the members other than `index`, to accept connections that it does not accept.
    pub(crate) fn wake_others(&self, index: usize) {
        for other in (0..self.members.len()).filter(|&other| other != index) {
            self.wakers.wake(other);
        }
    }

    fn subtract(&self, member: &Member, closed: u32) {
        member.load.fetch_sub(closed, Ordering::Relaxed);
        self.total.fetch_sub(closed.into(), Ordering::Relaxed);
        self.wake_dispatcher();
    }

    /// Wakes the dispatcher if it waits until a member can take another connection.
    fn wake_dispatcher(&self) {
        fence(Ordering::SeqCst);
        if self.is_awaited.load(Ordering::Relaxed) && self.is_awaited.swap(false, Ordering::Relaxed)
        {
            self.wakers.wake(self.members.len());
        }
    }
}

/// The membership of a worker's thread in a group. Dropping it ends the membership.
#[derive(Debug)]
pub(crate) struct Membership {
    group: Arc<Group>,
    index: usize,
    metrics: Arc<WorkerMetrics>,
    /// Number of open connections that the load of the member includes.
    counted: u32,
    /// Whether the thread ends after a time without connections.
    is_spare: bool,
    /// Time at which the thread ends, if it gets no connection before.
    ends_at: Option<Time>,
}

impl Membership {
    /// Adds the calling thread to the group.
    pub(crate) fn new(
        group: Arc<Group>,
        index: usize,
        metrics: Arc<WorkerMetrics>,
        is_spare: bool,
    ) -> Membership {
        let inbox = lock(&group.members[index].inbox);
        group.members[index].is_running.store(true, Ordering::Relaxed);
        drop(inbox);
        Membership { group, index, metrics, counted: 0, is_spare, ends_at: None }
    }

    fn member(&self) -> &Member {
        &self.group.members[self.index]
    }

    /// Takes the connections from the inbox. Returns them, and whether the member is asked to close
    /// an idle connection.
    pub(crate) fn take(&mut self) -> (Vec<HandedOver>, bool) {
        let mut inbox = lock(&self.member().inbox);
        let connections = std::mem::take(&mut inbox.connections);
        let must_evict = std::mem::take(&mut inbox.must_evict);
        drop(inbox);
        self.counted += connections.len() as u32;
        (connections, must_evict)
    }

    /// Returns whether the inbox has connections.
    pub(crate) fn has_waiting(&self) -> bool {
        self.group.has_waiting(self.index)
    }

    /// Begins a turn, in which idle connections may become active. The dispatcher chooses none of them
    /// until the end of the turn.
    pub(crate) fn begin_turn(&self) {
        self.member().idle_since.store(NEVER, Ordering::Release);
    }

    /// Publishes the number of open connections and whether one is idle, at the end of a turn.
    pub(crate) fn publish(&mut self, now: Time, open: usize, idle: Idle) {
        let (member, open) = (self.member(), open as u32);
        match idle {
            Idle::None => member.idle_since.store(NEVER, Ordering::Relaxed),
            // This thread may have begun to run long after the connection was accepted.
            Idle::New => {
                let handed_at = member.handed_at.load(Ordering::Relaxed);
                member.idle_since.store(handed_at, Ordering::Relaxed);
            }
            Idle::Served => member.idle_since.store(now.as_nanos(), Ordering::Relaxed),
        }
        if idle != Idle::None {
            self.group.wake_dispatcher();
        }
        if open != self.counted {
            match open.checked_sub(self.counted) {
                Some(more) => {
                    member.load.fetch_add(more, Ordering::Relaxed);
                    self.group.total.fetch_add(more.into(), Ordering::Relaxed);
                }
                None => self.group.subtract(member, self.counted - open),
            }
            self.counted = open;
        }
        let is_spare = self.is_spare && open == 0;
        self.ends_at = is_spare.then(|| self.ends_at.unwrap_or(now + SPARE_TIME));
    }

    /// Returns the time at which the thread ends, if it gets no connection before.
    pub(crate) fn ends_at(&self) -> Option<Time> {
        self.ends_at
    }

    /// Ends the membership if the thread had no connection for some time. Returns whether it ended.
    pub(crate) fn end_if_spare(&mut self, now: Time) -> bool {
        if self.ends_at.is_none_or(|ends_at| now < ends_at) {
            return false;
        }
        let inbox = lock(&self.member().inbox);
        let is_empty = inbox.connections.is_empty();
        if is_empty {
            self.member().is_running.store(false, Ordering::Relaxed);
        }
        is_empty
    }

    /// Returns the member to which this one, with `open` connections, should hand one: if it has more
    /// than an eighth above its share, the member with the fewest.
    pub(crate) fn overflow(&self, open: usize) -> Option<usize> {
        let (group, members) = (&self.group, self.group.members.len() as u64);
        let others = group.total.load(Ordering::Relaxed).saturating_sub(self.counted.into());
        let share = (others + open as u64) / members;
        if open as u64 <= share + share / 8 + 1 {
            return None;
        }
        let load = |index: &usize| group.members[*index].load.load(Ordering::Relaxed);
        (0..group.members.len()).filter(|&index| index != self.index).min_by_key(load)
    }

    /// Hands a connection to another member.
    pub(crate) fn hand_over(&self, now: Time, to: usize, connection: HandedOver) {
        self.group.hand_over(now, to, connection);
    }

    /// Wakes the other members, to accept connections that this one does not accept.
    pub(crate) fn wake_others(&self) {
        self.group.wake_others(self.index);
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.metrics.record_error(Error::Panic);
        }
        self.group.wakers.remove(self.index);
        let member = self.member();
        member.idle_since.store(NEVER, Ordering::Relaxed);
        let inbox = lock(&member.inbox);
        member.is_running.store(false, Ordering::Relaxed);
        drop(inbox);
        self.group.subtract(member, self.counted);
        lock(&self.group.ended).push(self.index);
        self.group.wakers.wake(self.group.members.len());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn connection() -> HandedOver {
        let (socket, _) = std::os::unix::net::UnixStream::pair().unwrap();
        let socket = StreamSocket::new(socket.into()).unwrap();
        HandedOver { socket, peer: None, is_served: false }
    }

    fn group(members: usize, capacity: usize) -> Arc<Group> {
        Group::new(members, capacity, Wakers::default())
    }

    fn join(group: &Arc<Group>, index: usize) -> Membership {
        Membership::new(group.clone(), index, Arc::default(), true)
    }

    #[test]
    fn chooses_free_then_stopped_then_idle_members() {
        let group = group(3, 1);
        let mut members = [join(&group, 0), join(&group, 1)];
        assert_eq!(group.choose(), Some(Choice::Running(0)));
        assert!(group.hand_over(Time::from_nanos(1), 0, connection()));
        assert_eq!(group.choose(), Some(Choice::Running(1)));
        assert!(group.hand_over(Time::from_nanos(1), 1, connection()));
        assert_eq!(group.choose(), Some(Choice::Stopped(2)));
        let mut last = join(&group, 2);
        group.hand_over(Time::from_nanos(1), 2, connection());
        assert_eq!((group.choose(), group.open()), (None, 3));

        let second = |seconds: u64| Time::from_nanos(seconds * 1_000_000_000);
        for (member, idle_since) in members.iter_mut().rev().chain([&mut last]).zip([5, 6, 7]) {
            assert_eq!(member.take().0.len(), 1);
            member.publish(second(idle_since), 1, Idle::Served);
        }
        assert_eq!(group.choose(), Some(Choice::Idle(1)));
        group.hand_over(Time::from_nanos(1), 1, connection());
        // Member 1 is about to close its idle connection.
        assert_eq!(group.choose(), Some(Choice::Idle(0)));
        members[0].publish(second(8), 0, Idle::None);
        assert_eq!((group.choose(), group.open()), (Some(Choice::Running(0)), 3));
    }

    #[test]
    fn spreads_connections_over_event_loops() {
        let group = group(3, 100);
        let mut members: Vec<_> = (0..3).map(|index| join(&group, index)).collect();
        for _ in 0..30 {
            group.hand_over(Time::from_nanos(1), group.choose().unwrap().member(), connection());
        }
        let taken: Vec<_> = members.iter_mut().map(|member| member.take().0.len()).collect();
        assert_eq!(taken, [10, 10, 10]);
    }

    #[test]
    fn a_loop_above_its_share_hands_over_to_the_one_with_the_fewest() {
        let group = group(3, 1000);
        let mut members: Vec<_> = (0..3).map(|index| join(&group, index)).collect();
        for (member, open) in members.iter_mut().zip([100, 100, 40]) {
            member.publish(Time::from_nanos(1), open, Idle::Served);
        }
        assert_eq!(members[0].overflow(85), None);
        assert_eq!(members[0].overflow(100), Some(2));
        assert_eq!(members[2].overflow(41), None);
    }

    #[test]
    fn spare_threads_end_after_a_while() {
        let group = group(1, 1);
        let mut member = join(&group, 0);
        let start = Time::from_nanos(0);
        member.publish(start, 0, Idle::None);
        let end = member.ends_at().unwrap();
        assert_eq!(end, start + SPARE_TIME);
        group.hand_over(Time::from_nanos(1), 0, connection());
        assert!(!member.end_if_spare(end), "a connection waits");
        member.take();
        member.publish(end, 1, Idle::None);
        assert_eq!(member.ends_at(), None);
        member.publish(end, 0, Idle::None);
        assert!(member.end_if_spare(end + SPARE_TIME));
        assert!(!group.hand_over(Time::from_nanos(1), 0, connection()));
        assert_eq!(group.choose(), Some(Choice::Stopped(0)));
        drop(member);
        assert_eq!((group.take_ended(), group.take_ended()), (Some(0), None));
        assert!(group.has_waiting(0));
        group.discard(0);
        assert_eq!(group.open(), 0);
    }

    #[test]
    fn a_panic_releases_the_connections_of_a_member() {
        let group = group(1, 1);
        let metrics: Arc<WorkerMetrics> = Arc::default();
        let mut member = Membership::new(group.clone(), 0, metrics.clone(), false);
        group.hand_over(Time::from_nanos(1), 0, connection());
        let thread = std::thread::spawn(move || {
            assert_eq!(member.take().0.len(), 1);
            panic!("as a handler might");
        });
        assert!(thread.join().is_err());
        assert_eq!((group.open(), group.is_running(0)), (0, false));
        assert_eq!(group.take_ended(), Some(0));
    }
}

#[cfg(all(test, loom))]
mod models {
    //! Models of handing over, checked by loom: `scripts/loom`.

    use hearken::EventQueue;
    use loom::thread;

    use super::*;

    fn connection() -> HandedOver {
        let (socket, _) = std::os::unix::net::UnixStream::pair().unwrap();
        let socket = StreamSocket::new(socket.into()).unwrap();
        HandedOver { socket, peer: None, is_served: false }
    }

    // A thread may end while a connection is handed to it.
    #[test]
    fn no_connection_is_lost_when_a_spare_thread_ends() {
        loom::model(|| {
            let group = Group::new(1, 1, Wakers::default());
            let mut member = Membership::new(group.clone(), 0, Arc::default(), true);
            member.publish(Time::from_nanos(0), 0, Idle::None);
            let (other, end) = (group.clone(), member.ends_at().unwrap());
            let dispatcher =
                thread::spawn(move || other.hand_over(Time::from_nanos(1), 0, connection()));
            let has_ended = member.end_if_spare(end);
            let is_running = dispatcher.join().unwrap();
            assert!(is_running != has_ended, "either the thread or the dispatcher serves it");
        });
    }

    // A member may close its connection while the dispatcher begins to wait.
    #[test]
    fn a_waiting_dispatcher_learns_that_a_member_has_capacity() {
        loom::model(|| {
            let queue = EventQueue::<()>::new().unwrap();
            let wakers = Wakers::default();
            wakers.set(1, queue.waker(), |_| ());
            let group = Group::new(1, 1, wakers);
            let mut member = Membership::new(group.clone(), 0, Arc::default(), false);
            group.hand_over(Time::from_nanos(1), 0, connection());
            member.take();
            let thread = thread::spawn(move || {
                member.publish(Time::from_nanos(1), 0, Idle::None);
                member
            });
            group.set_awaited(true);
            let has_capacity = group.choose().is_some();
            let member = thread.join().unwrap();
            let woken = queue.next_events(1, Some(Duration::ZERO)).unwrap().woken();
            assert!(has_capacity || woken);
            drop(member);
        });
    }
}
