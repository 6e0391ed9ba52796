//! Process-wide interest over mechanisms that cannot share an open file: where the kernel tells one
//! owner, as with signals, a thread of its own watches for all and tells them.
//!
//! There is one such thread in a process, from the first such interest on. It sleeps in epoll_wait(2)
//! and has no state but who is to be told of what: a queue that it rings looks for itself.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::io::Errno;

use super::shared::Wake;
use crate::event::Token;
use crate::waker::Waker;

/// Rings one queue: how it is told that something of what it shares may be ready.
pub(super) struct Bell {
    waker: Waker,
    /// The registrations of the queue that it is told of.
    rung: Mutex<Vec<Token>>,
    /// The queue's thread is about to sleep, or does.
    waiting: AtomicBool,
}

impl Bell {
    pub(super) fn new(waker: Waker) -> Bell {
        Bell { waker, rung: Mutex::default(), waiting: AtomicBool::new(false) }
    }

    pub(super) fn set_waiting(&self, waiting: bool) {
        self.waiting.store(waiting, Ordering::Relaxed);
    }

    /// The registrations for which it was rung since the last time.
    pub(super) fn answer(&self) -> Vec<Token> {
        std::mem::take(&mut *lock(&self.rung))
    }

    fn ring(&self, who: Token) {
        let mut rung = lock(&self.rung);
        if !rung.contains(&who) {
            rung.push(who);
        }
        drop(rung);
        self.waker.wake();
    }
}

/// One shared source, and the registrations of it.
pub(super) struct Post {
    source: Arc<dyn AsFd + Send + Sync>,
    wake: Wake,
    members: Mutex<Members>,
}

#[derive(Default)]
struct Members {
    bells: Vec<(Token, Arc<Bell>)>,
    /// Whose turn it is.
    next: usize,
    /// By which the herald knows it.
    key: u64,
}

impl Post {
    pub(super) fn new(source: Arc<dyn AsFd + Send + Sync>, wake: Wake) -> Post {
        Post { source, wake, members: Mutex::default() }
    }

    /// Has `bell` be rung for `who`.
    pub(super) fn join(self: &Arc<Post>, who: Token, bell: &Arc<Bell>) -> io::Result<()> {
        let mut members = lock(&self.members);
        if members.bells.is_empty() {
            members.key = herald()?.watch(self)?;
        }
        members.bells.push((who, bell.clone()));
        Ok(())
    }

    /// Ends that. What it was rung for and has not looked at goes to another.
    pub(super) fn leave(&self, who: Token, bell: &Arc<Bell>) {
        let mut members = lock(&self.members);
        members.bells.retain(|(other, of)| *other != who || !Arc::ptr_eq(of, bell));
        if members.bells.is_empty()
            && let Ok(herald) = herald()
        {
            herald.forget(self, members.key);
        }
        drop(members);
        let mut rung = lock(&bell.rung);
        let unheard = rung.iter().position(|rung| *rung == who).map(|at| rung.swap_remove(at));
        drop(rung);
        if unheard.is_some() {
            self.ring();
        }
    }

    fn ring(&self) {
        let mut members = lock(&self.members);
        let Members { bells, next, .. } = &mut *members;
        match self.wake {
            Wake::All => bells.iter().for_each(|(who, bell)| bell.ring(*who)),
            Wake::One if bells.is_empty() => {}
            Wake::One => {
                // Who sleeps has time; in turn, so that not one does all the work.
                let count = bells.len();
                let sleeps = |at: &usize| bells[*at].1.waiting.load(Ordering::Relaxed);
                let start = *next % count;
                let chosen = (start..count).chain(0..start).find(sleeps).unwrap_or(start);
                let (who, bell) = &bells[chosen];
                bell.ring(*who);
                *next = chosen + 1;
            }
        }
    }
}

impl fmt::Debug for Post {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Post").field("wake", &self.wake).finish_non_exhaustive()
    }
}

/// Who watches.
struct Herald {
    epoll: OwnedFd,
    posts: Mutex<Posts>,
}

#[derive(Default)]
struct Posts {
    by_key: HashMap<u64, Weak<Post>>,
    last: u64,
}

/// The one of this process.
fn herald() -> io::Result<Arc<Herald>> {
    static HERALD: Mutex<Option<Arc<Herald>>> = Mutex::new(None);
    let mut herald = lock(&HERALD);
    if let Some(herald) = &*herald {
        return Ok(herald.clone());
    }
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let new = Arc::new(Herald { epoll, posts: Mutex::default() });
    let its = new.clone();
    thread::Builder::new().name("hearken-herald".to_owned()).spawn(move || its.watch_all())?;
    *herald = Some(new.clone());
    Ok(new)
}

impl Herald {
    fn watch(&self, post: &Arc<Post>) -> io::Result<u64> {
        let mut posts = lock(&self.posts);
        posts.last += 1;
        let key = posts.last;
        let data = epoll::EventData::new_u64(key);
        let both = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP;
        epoll::add(&self.epoll, post.source.as_fd(), data, both | epoll::EventFlags::ET)?;
        posts.by_key.insert(key, Arc::downgrade(post));
        Ok(key)
    }

    fn forget(&self, post: &Post, key: u64) {
        // Refused, the kernel has forgotten it already.
        let _ = epoll::delete(&self.epoll, post.source.as_fd());
        lock(&self.posts).by_key.remove(&key);
    }

    fn watch_all(&self) {
        let mut batch = Vec::with_capacity(64);
        loop {
            batch.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut batch), None) {
                Ok(_) | Err(Errno::INTR) => {}
                // None is to be expected of an epoll that is open.
                Err(_) => return,
            }
            for event in &batch {
                let post = lock(&self.posts).by_key.get(&event.data.u64()).and_then(Weak::upgrade);
                if let Some(post) = post {
                    post.ring();
                }
            }
        }
    }
}

/// What a panic of another thread leaves behind is whole: nothing here is changed in two steps.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
