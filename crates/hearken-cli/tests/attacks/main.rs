//! Attacks on HTTP/2 and TLS. `table.rs` lists them.
//!
//! Each runs in two ways. As a test it is short: the server ends it as documented, its memory stays
//! bounded, and others are served. `scripts/attack` repeats each attack for seconds and measures what
//! it costs the server:
//!
//!     cargo test -p hearken-cli --test attacks -- every_attack_is_bounded

#[path = "../program/mod.rs"]
mod program;

mod attacker;
mod frames;
mod measure;
mod server;
mod table;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use attacker::{Attacker, Sent};
use frames::goaway_code;
use server::Server;
use table::{ATTACKS, Attack, End, Then};

/// Timeouts that end an attack soon.
const SETTINGS: &str = "[timeouts]\nheader = \"3s\"\nsend = \"1s\"\n";
/// Time in which the server must end a connection.
const PATIENCE: Duration = Duration::from_secs(60);
/// Maximum number of rounds that the server may accept.
const MAX_ROUNDS: u32 = 1_000_000;
/// Number of rounds of an attack that the server does not end.
const OPEN_ROUNDS: u32 = 50;
/// Number of connections of an attack that keeps or leaves them.
const CONNECTIONS: usize = 20;
/// Memory in bytes that a server may need for its buffers, whatever the number of clients.
pub(crate) const SHARED_MEMORY: u64 = 8 << 20;

#[test]
fn every_attack_is_bounded() {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while let Some(attack) = ATTACKS.get(next.fetch_add(1, Ordering::Relaxed)) {
                    check(attack);
                }
            });
        }
    });
}

fn check(attack: &Attack) {
    let name = attack.name;
    let server = Server::start(attack.server, SETTINGS);
    let mut other = server.connect().unwrap();
    other.get().unwrap();
    let before = server.peak_memory();
    let connect = || Attacker::connect(attack, server.port, &server.certificate);
    let mut attackers = Vec::new();
    match attack.then {
        Then::Continue | Then::Ignore => {
            let mut attacker = connect();
            let is_open = matches!(attack.end, End::Open);
            let sent = attacker.send_rounds(if is_open { OPEN_ROUNDS } else { MAX_ROUNDS });
            let expected = if is_open { Sent::All } else { Sent::Ended };
            assert_eq!(sent, expected, "{name}: after {} bytes", attacker.sent);
            attackers.push(attacker);
        }
        Then::Hold(rounds) => {
            for _ in 0..CONNECTIONS {
                let mut attacker = connect();
                attacker.send_rounds(rounds);
                attackers.push(attacker);
            }
        }
        Then::Leave(rounds) => {
            for _ in 0..CONNECTIONS {
                let mut attacker = connect();
                attacker.send_rounds(rounds);
                attacker.receive_first(Duration::from_millis(100));
            }
        }
    }
    let count = attackers.len().max(1) as u64;
    for attacker in &mut attackers {
        let has_ended = match attack.end {
            End::Open => continue,
            End::Timeout => attacker.wait_end(PATIENCE),
            End::Goaway(_) | End::Alert => attacker.receive_end(PATIENCE),
        };
        assert!(has_ended, "{name}: the connection does not end");
        check_end(attack, &attacker.received);
    }
    let grown = server.peak_memory() - before;
    let limit = SHARED_MEMORY + count * attack.memory;
    assert!(grown <= limit, "{name}: the server's memory grew by {grown} instead of {limit} bytes");
    other.get().unwrap_or_else(|error| panic!("{name}: another client: {error}"));
    server.connect().unwrap().get().unwrap_or_else(|error| panic!("{name}: a new client: {error}"));
}

/// Asserts that the server ended a connection as documented.
fn check_end(attack: &Attack, received: &[u8]) {
    let name = attack.name;
    match attack.end {
        End::Goaway(expected) => {
            // The reset that follows further input may overtake GOAWAY.
            let code = goaway_code(received);
            assert!(code.is_none_or(|code| code == expected), "{name}: {code:?}");
        }
        End::Alert => {
            // Encrypted alerts of TLS 1.3 are records with content.
            let last = received.first();
            assert!(matches!(last, None | Some(21..=23)), "{name}: {last:?}");
        }
        End::Timeout | End::Open => {}
    }
}
