//! An `Io` that asserts what the contract promises of every completion.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use hearken::Token;
use hearken::io::{Address, Completion, CompletionKind, Io, ListenOptions, Outgoing, Pool, Relay};
use hearken::io::{RelayEnd, SendOutcome, Then};
use hearken::mechanism::Counters;
use hearken::timer::Time;
use hearken::waker::Waker;

/// Passes everything on to `I`, and panics where an answer breaks the contract.
pub(crate) struct Checked<I> {
    io: I,
    live: HashMap<Token, Life>,
    ever: HashSet<Token>,
}

/// What is known of a listener or connection.
#[derive(Default)]
struct Life {
    listener: bool,
    connecting: bool,
    /// Of a Unix socket, which is connected before that is told.
    unix: bool,
    /// Now, and ever.
    started: bool,
    heard: bool,
    /// Receiving is over, by `End` or `ReceiveFailed`.
    ended: bool,
    /// Sends that were not completed.
    sends: usize,
    /// The last of them closes it.
    closes: bool,
    broken: bool,
    deadline: Option<Time>,
    /// What a relay is to move from it at most, and where to.
    relays: Option<(u64, Token)>,
}

impl<I: Io> Checked<I> {
    pub(crate) fn new(io: I) -> Checked<I> {
        assert_eq!(io.open(), 0);
        Checked { io, live: HashMap::new(), ever: HashSet::new() }
    }

    fn born(&mut self, token: Token, life: Life) {
        assert!(self.ever.insert(token), "{token:?} was given out before");
        self.live.insert(token, life);
        self.count();
    }

    fn sent_now(&mut self, on: Token, done: bool) -> bool {
        match self.live.get_mut(&on) {
            Some(life) if done => {
                assert!(!life.broken && (life.unix || !life.connecting), "sent, but how?");
            }
            Some(life) => life.sends += 1,
            None => assert!(!done, "sent to nobody"),
        }
        done
    }

    fn count(&self) {
        assert_eq!(self.io.open(), self.live.len(), "open() miscounts");
    }

    fn check(&mut self, Completion { token: on, kind: what }: &Completion) {
        if matches!(what, CompletionKind::Woken) {
            return;
        }
        let now = self.io.now();
        let Some(life) = self.live.get_mut(on) else {
            panic!("{what:?} on {on:?}, which is closed or never was");
        };
        if life.listener {
            match what {
                CompletionKind::Accepted { .. } => assert!(life.started, "accepted while stopped"),
                CompletionKind::AcceptFailed(_) => assert!(std::mem::take(&mut life.started)),
                CompletionKind::Deadline => {}
                _ => panic!("{what:?} on a listener"),
            }
        } else if life.connecting && !matches!(what, CompletionKind::Deadline) {
            assert!(matches!(what, CompletionKind::Connected(_)), "{what:?} before Connected");
        }
        if matches!(
            what,
            CompletionKind::Received(_) | CompletionKind::End | CompletionKind::ReceiveFailed(_)
        ) {
            life.relays = None; // It came before.
        }
        match what {
            CompletionKind::Relayed { moved, ended } => {
                let (most, _) = life.relays.take().expect("there was no relay");
                assert!(!life.ended, "relayed after the end");
                match ended {
                    RelayEnd::Most => assert_eq!(*moved, most),
                    RelayEnd::End | RelayEnd::ReceiveFailed(_) => life.ended = true,
                    RelayEnd::SendFailed(_) => {}
                }
                assert!(*moved <= most);
            }
            CompletionKind::Accepted { token, .. } => self.born(*token, Life::default()),
            CompletionKind::Connected(_) => {
                assert!(std::mem::take(&mut life.connecting), "{what:?}");
            }
            CompletionKind::Received(bytes) => {
                assert!(life.heard, "received before start");
                assert!(!life.ended, "received after the end");
                assert!(!bytes.is_empty(), "received nothing");
            }
            CompletionKind::End | CompletionKind::ReceiveFailed(_) => {
                assert!(life.heard, "{what:?} before start");
                assert!(!std::mem::replace(&mut life.ended, true), "a second {what:?}");
            }
            CompletionKind::Sent(result) => {
                assert!(!life.broken, "{what:?} after a failed send");
                assert!(life.sends > 0, "{what:?}, but nothing was");
                life.sends -= 1;
                life.broken = result.is_err();
                if life.closes && life.sends == 0 && result.is_ok() {
                    self.live.remove(on);
                }
            }
            CompletionKind::Deadline => {
                let deadline = life.deadline.take().expect("there was none");
                assert!(now >= deadline, "{:?} early", deadline - now);
            }
            _ => {}
        }
        self.count();
    }
}

impl<I: Io> Io for Checked<I> {
    fn listen(&mut self, address: &Address, options: &ListenOptions) -> io::Result<Token> {
        let token = self.io.listen(address, options);
        match token {
            Ok(token) => {
                let listener = true;
                self.born(token, Life { listener, ..Life::default() });
            }
            Err(_) => self.count(),
        }
        token
    }

    fn reserve(&mut self, connections: usize) {
        self.io.reserve(connections);
    }

    fn connect(&mut self, address: &Address, source: Option<SocketAddr>) -> io::Result<Token> {
        let token = self.io.connect(address, source);
        match token {
            Ok(token) => {
                let (connecting, unix) = (true, matches!(address, Address::Unix(_)));
                self.born(token, Life { connecting, unix, ..Life::default() });
            }
            Err(_) => self.count(),
        }
        token
    }

    fn start(&mut self, on: Token) {
        if let Some(life) = self.live.get_mut(&on) {
            life.started = true;
            life.heard = true;
        }
        self.io.start(on);
    }

    fn stop(&mut self, on: Token) {
        if let Some(life) = self.live.get_mut(&on) {
            life.started = false;
        }
        self.io.stop(on);
    }

    fn send(&mut self, on: Token, what: Outgoing) {
        if let Some(life) = self.live.get_mut(&on) {
            life.sends += 1;
        }
        self.io.send(on, what);
    }

    fn send_last(&mut self, on: Token, bytes: &[u8], then: Then) -> SendOutcome {
        let last = self.io.send_last(on, bytes, then);
        self.sent_now(on, last == SendOutcome::Complete);
        if let Some(life) = self.live.get_mut(&on) {
            life.closes = last == SendOutcome::PendingClose;
        }
        last
    }

    fn send_now(&mut self, on: Token, bytes: &[u8]) -> bool {
        let done = self.io.send_now(on, bytes);
        self.sent_now(on, done)
    }

    fn shutdown(&mut self, on: Token) {
        self.io.shutdown(on);
    }

    fn close(&mut self, on: Token) {
        self.live.remove(&on);
        self.io.close(on);
        self.count();
    }

    fn abort(&mut self, on: Token) {
        self.live.remove(&on);
        self.io.abort(on);
        self.count();
    }

    fn set_deadline(&mut self, on: Token, deadline: Option<Time>) {
        if let Some(life) = self.live.get_mut(&on) {
            life.deadline = deadline;
        }
        self.io.set_deadline(on, deadline);
    }

    fn delivered(&self, on: Token) -> u64 {
        self.io.delivered(on)
    }

    fn undelivered(&self, on: Token) -> u64 {
        self.io.undelivered(on)
    }

    fn socket(&self, on: Token) -> Option<BorrowedFd<'_>> {
        self.io.socket(on)
    }

    fn wait(&mut self, until: Option<Time>) -> io::Result<()> {
        self.io.wait(until)
    }

    fn next(&mut self) -> Option<Completion> {
        let completion = self.io.next()?;
        self.check(&completion);
        Some(completion)
    }

    fn now(&self) -> Time {
        self.io.now()
    }

    fn pool(&self) -> &Pool {
        self.io.pool()
    }

    fn waker(&self) -> Waker {
        self.io.waker()
    }

    fn counters(&self) -> Counters {
        self.io.counters()
    }

    fn open(&self) -> usize {
        self.io.open()
    }
}

impl<I: Relay> Relay for Checked<I> {
    fn relay(&mut self, from: Token, to: Token, most: u64) -> bool {
        let relays = self.io.relay(from, to, most);
        if relays {
            assert!(self.live.contains_key(&to), "to nobody");
            let life = self.live.get_mut(&from).expect("from nobody");
            assert!(!life.ended, "what ended is relayed");
            assert!(life.relays.replace((most, to)).is_none(), "it relays already");
        }
        relays
    }

    fn relayed(&self, from: Token) -> u64 {
        self.io.relayed(from)
    }

    fn relay_is_blocked(&self, to: Token) -> bool {
        self.io.relay_is_blocked(to)
    }
}
