//! Process-wide interest over mechanisms that cannot share an open file.
//!
//! With such mechanisms, as with signals, the kernel notifies only one owner. A dispatcher thread
//! watches the shared sources in its place and notifies the queues.
//!
//! A process has one such thread, started with the first such interest. It sleeps in epoll_wait(2).
//! Its only state is the list of subscribers: a queue that it notifies checks the readiness itself.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};
use std::thread;

use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::io::Errno;

use super::shared::Wake;
use crate::event::{Interest, Token};
use crate::mechanism::{self, Trigger};
use crate::sync::{AtomicBool, Mutex, MutexGuard};
use crate::waker::Waker;

/// Notifies one queue that a shared source may be ready.
pub(super) struct Notifier {
    waker: Waker,
    /// The queue's registrations to be checked.
    pending: Mutex<Vec<Token>>,
    /// Whether the queue's thread sleeps or is about to.
    waiting: AtomicBool,
}

impl Notifier {
    pub(super) fn new(waker: Waker) -> Notifier {
        Notifier { waker, pending: Mutex::default(), waiting: AtomicBool::new(false) }
    }

    pub(super) fn set_waiting(&self, waiting: bool) {
        self.waiting.store(waiting, Ordering::Relaxed);
    }

    /// Returns the registrations that were notified since the last call.
    pub(super) fn take_pending(&self) -> Vec<Token> {
        std::mem::take(&mut *lock(&self.pending))
    }

    fn notify(&self, token: Token) {
        let mut pending = lock(&self.pending);
        if !pending.contains(&token) {
            pending.push(token);
        }
        drop(pending);
        self.waker.wake();
    }
}

/// A shared source and the registrations that subscribe to it.
pub(super) struct SharedSource {
    source: Arc<dyn AsFd + Send + Sync>,
    wake: Wake,
    subscribers: Mutex<Subscribers>,
}

#[derive(Default)]
struct Subscribers {
    list: Vec<(Token, Arc<Notifier>)>,
    /// The index at which the search for the next queue to notify begins.
    next: usize,
    /// The dispatcher's key of the source.
    key: u64,
}

impl SharedSource {
    pub(super) fn new(source: Arc<dyn AsFd + Send + Sync>, wake: Wake) -> SharedSource {
        SharedSource { source, wake, subscribers: Mutex::default() }
    }

    /// Adds a registration to be notified through `notifier`.
    pub(super) fn subscribe(
        self: &Arc<SharedSource>,
        token: Token,
        notifier: &Arc<Notifier>,
    ) -> io::Result<()> {
        let mut subscribers = lock(&self.subscribers);
        if subscribers.list.is_empty() {
            subscribers.key = dispatcher()?.watch(self)?;
        }
        subscribers.list.push((token, notifier.clone()));
        Ok(())
    }

    /// Removes a registration. If it was notified and has not checked the source, another one is
    /// notified instead.
    pub(super) fn unsubscribe(&self, token: Token, notifier: &Arc<Notifier>) {
        let mut subscribers = lock(&self.subscribers);
        subscribers.list.retain(|(other, of)| *other != token || !Arc::ptr_eq(of, notifier));
        if subscribers.list.is_empty()
            && let Ok(dispatcher) = dispatcher()
        {
            dispatcher.unwatch(self, subscribers.key);
        }
        drop(subscribers);
        let mut pending = lock(&notifier.pending);
        let unchecked = pending.iter().position(|pending| *pending == token);
        let unchecked = unchecked.map(|index| pending.swap_remove(index));
        drop(pending);
        if unchecked.is_some() {
            self.notify();
        }
    }

    fn notify(&self) {
        let mut subscribers = lock(&self.subscribers);
        let Subscribers { list, next, .. } = &mut *subscribers;
        match self.wake {
            Wake::All => list.iter().for_each(|(token, notifier)| notifier.notify(*token)),
            Wake::One if list.is_empty() => {}
            Wake::One => {
                // Sleeping queues are preferred, in turn, to spread the work.
                let count = list.len();
                let sleeps = |index: &usize| list[*index].1.waiting.load(Ordering::Relaxed);
                let start = *next % count;
                let selected = (start..count).chain(0..start).find(sleeps).unwrap_or(start);
                let (token, notifier) = &list[selected];
                notifier.notify(*token);
                *next = selected + 1;
            }
        }
    }
}

impl fmt::Debug for SharedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedSource").field("wake", &self.wake).finish_non_exhaustive()
    }
}

/// The state of the dispatcher thread.
struct Dispatcher {
    epoll: OwnedFd,
    sources: Mutex<Sources>,
}

#[derive(Default)]
struct Sources {
    by_key: HashMap<u64, Weak<SharedSource>>,
    last_key: u64,
}

/// Returns the dispatcher of this process, which the first call starts.
fn dispatcher() -> io::Result<Arc<Dispatcher>> {
    static DISPATCHER: std::sync::Mutex<Option<Arc<Dispatcher>>> = std::sync::Mutex::new(None);
    let mut dispatcher = DISPATCHER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(dispatcher) = &*dispatcher {
        return Ok(dispatcher.clone());
    }
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let new = Arc::new(Dispatcher { epoll, sources: Mutex::default() });
    let running = new.clone();
    thread::Builder::new().name("hearken-events".to_owned()).spawn(move || running.run())?;
    *dispatcher = Some(new.clone());
    Ok(new)
}

impl Dispatcher {
    fn watch(&self, source: &Arc<SharedSource>) -> io::Result<u64> {
        let mut sources = lock(&self.sources);
        sources.last_key += 1;
        let key = sources.last_key;
        let data = epoll::EventData::new_u64(key);
        let flags = mechanism::epoll::flags(Interest::all(), Trigger::Edge);
        epoll::add(&self.epoll, source.source.as_fd(), data, flags)?;
        sources.by_key.insert(key, Arc::downgrade(source));
        Ok(key)
    }

    fn unwatch(&self, source: &SharedSource, key: u64) {
        // An error means that the kernel has already removed it.
        let _ = epoll::delete(&self.epoll, source.source.as_fd());
        lock(&self.sources).by_key.remove(&key);
    }

    fn run(&self) {
        let mut batch = Vec::with_capacity(64);
        loop {
            batch.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut batch), None) {
                Ok(_) | Err(Errno::INTR) => {}
                // An open epoll instance has no other errors.
                Err(_) => return,
            }
            for event in &batch {
                let key = event.data.u64();
                let source = lock(&self.sources).by_key.get(&key).and_then(Weak::upgrade);
                if let Some(source) = source {
                    source.notify();
                }
            }
        }
    }
}

/// Locks a mutex, poisoned or not: every change of the state it protects is a single step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(test, loom))]
mod models;
