//! Fairness, and turns that are abandoned.

use std::time::{Duration, Instant};

use bytes::Bytes;
use hearken::Token;
use hearken::io::Io;

use crate::Case;
use crate::net::{Kind, LONG, Net, PATIENCE, between, both, file, part, pattern};

/// A connection that floods and another one, each with its connecting side first.
struct Flood<I: Io> {
    client: Net<I>,
    server: Net<I>,
    flood: (Token, Token),
    other: (Token, Token),
}

impl<I: Io> Flood<I> {
    fn new(case: &Case<'_, I>) -> Flood<I> {
        let (mut client, mut server) = (Net::new(case), Net::new(case));
        let flood = between(&mut client, &mut server);
        let other = between(&mut client, &mut server);
        for (from, to) in [flood, other] {
            client.io.start(from);
            server.io.start(to);
        }
        Flood { client, server, flood, other }
    }

    /// Handles the server's completions with `serve`, while the client receives everything. The
    /// other connection sends a request in the first turn. The server must receive it while
    /// `continues` returns true.
    fn run(
        mut self,
        mut serve: impl FnMut(&mut Net<I>, Token, Kind),
        continues: impl Fn(&mut Net<I>, Token) -> bool,
    ) {
        let began = Instant::now();
        let mut asked = false;
        loop {
            self.server.wait(Duration::ZERO);
            let mut more = true;
            while more {
                let completion = self.server.next();
                more = completion.is_some();
                if let Some((token, kind)) = completion {
                    if token == self.other.1 && matches!(kind, Kind::Received(_)) {
                        return;
                    }
                    serve(&mut self.server, token, kind);
                }
                if !std::mem::replace(&mut asked, true) {
                    self.client.send(self.other.0, b"request");
                }
                self.client.turn(Duration::ZERO);
                assert!(
                    continues(&mut self.server, self.flood.1),
                    "the other was not served before the flood's end"
                );
            }
            assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}");
        }
    }
}

/// Checks fairness towards a connection that sends continuously.
pub(crate) fn received_flood_does_not_starve_others<I: Io>(case: &Case<'_, I>) {
    let mut flood = Flood::new(case);
    let from = flood.flood.0;
    flood.client.send_body(from, Bytes::from(pattern(1, LONG)));
    flood.client.turn(Duration::ZERO);
    flood.run(|_, _, _| {}, |server, token| server.seen(token).received.len() < LONG);
}

/// Checks fairness with a small limit per turn, if all bytes of the flood, and its end, have
/// arrived before.
pub(crate) fn ended_flood_does_not_starve_others<I: Io>(case: &Case<'_, I>) {
    let Some(share) = case.turn_bytes else {
        return;
    };
    let mut flood = Flood::new(case);
    let (from, to) = flood.flood;
    flood.server.io.stop(to);
    flood.client.send(from, &pattern(8, 50 * share));
    flood.client.expect_sent(from, 1);
    flood.client.io.shutdown(from);
    flood.server.run_until_idle();
    flood.server.io.start(to);
    flood.run(|_, _, _| {}, |server, token| server.seen(token).received.len() < 10 * share);
}

/// Checks fairness if each piece is answered before the next one is received, as in servers that
/// limit their memory.
pub(crate) fn answered_flood_does_not_starve_others<I: Io>(case: &Case<'_, I>) {
    let mut flood = Flood::new(case);
    let from = flood.flood.0;
    flood.client.send_body(from, Bytes::from(pattern(2, LONG)));
    flood.client.turn(Duration::ZERO);
    flood.run(
        |server, token, kind| match kind {
            Kind::Received(_) => {
                server.io.stop(token);
                server.send(token, b"answer");
            }
            Kind::Sent => server.io.start(token),
            _ => {}
        },
        |server, token| server.seen(token).received.len() < LONG,
    );
}

/// Checks fairness if the server continuously sends the next piece after each one.
pub(crate) fn sent_flood_does_not_starve_others<I: Io>(case: &Case<'_, I>) {
    let piece = Bytes::from(pattern(3, 1 << 14));
    let mut flood = Flood::new(case);
    let to = flood.flood.1;
    flood.server.send_body(to, piece.clone());
    flood.run(
        |server, token, kind| {
            if kind == Kind::Sent {
                server.send_body(token, piece.clone());
            }
        },
        |server, token| server.seen(token).sent.len() < LONG >> 14,
    );
}

/// Checks fairness while a long file is sent to a fast reader.
pub(crate) fn file_transfer_does_not_starve_others<I: Io>(case: &Case<'_, I>) {
    let mut flood = Flood::new(case);
    let on_disk = file(&pattern(4, LONG));
    let to = flood.flood.1;
    let body = part(&on_disk, 0, LONG as u64);
    flood.server.send_with(to, b"head", body);
    flood.run(|_, _, _| {}, |server, token| server.seen(token).sent.is_empty());
}

/// Connections that download a file, and another one that sends requests.
struct Downloads<I: Io> {
    client: Net<I>,
    server: Net<I>,
    /// Both sides of each download, the client's first.
    downloads: Vec<(Token, Token)>,
    other: (Token, Token),
}

impl<I: Io> Downloads<I> {
    const COUNT: usize = 20;
    const LENGTH: usize = 1 << 20;

    fn new(case: &Case<'_, I>) -> Downloads<I> {
        let (mut client, mut server) = (Net::new(case), Net::new(case));
        let other = between(&mut client, &mut server);
        let pairs = (0..Self::COUNT).map(|_| between(&mut client, &mut server));
        let downloads = pairs.collect();
        client.io.start(other.0);
        server.io.start(other.1);
        client.run_until_idle();
        server.run_until_idle();
        Downloads { client, server, downloads, other }
    }

    /// Starts to send the file to all.
    fn send(&mut self) {
        let on_disk = file(&pattern(11, Self::LENGTH));
        for &(_, to) in &self.downloads {
            self.server.send_with(to, b"head", part(&on_disk, 0, Self::LENGTH as u64));
        }
    }

    /// Returns the number of bytes that were sent on a connection.
    fn sent_on(&self, token: Token) -> u64 {
        self.server.io.delivered(token) + self.server.io.undelivered(token)
    }

    /// Returns the number of bytes that were sent on all downloads.
    fn sent(&self) -> u64 {
        self.downloads.iter().map(|&(_, to)| self.sent_on(to)).sum()
    }
}

/// Checks that a request that arrives during many downloads waits for the large transfers of one
/// turn only, and not for all downloads to start.
pub(crate) fn requests_precede_downloads<I: Io>(case: &Case<'_, I>) {
    let Some(share) = case.bulk_bytes else {
        return;
    };
    let mut all = Downloads::new(case);
    all.send();
    let began = all.sent();
    assert!(began <= 3 * share as u64, "{began} bytes were sent at once");
    for round in 0..5 {
        let before = all.sent();
        // The turn starts without the request.
        all.server.wait(Duration::ZERO);
        all.client.send(all.other.0, b"request");
        all.client.turn(Duration::ZERO);
        let mut served = false;
        while !served {
            match all.server.next() {
                Some((token, kind)) => served = token == all.other.1 && kind == Kind::Received(7),
                None => all.server.wait(Duration::ZERO),
            }
        }
        let sent = all.sent() - before;
        let limit = 3 * share as u64 * u64::from(case.max_waits);
        assert!(sent <= limit, "{sent} bytes were sent first, in round {round}");
    }
}

/// Checks that downloads that exceed the time of a turn continue in later turns, in order.
pub(crate) fn downloads_take_turns<I: Io>(case: &Case<'_, I>) {
    if case.bulk_bytes.is_none() {
        return;
    }
    let mut all = Downloads::new(case);
    all.send();
    for &(from, _) in &all.downloads {
        all.client.io.start(from);
    }
    let Downloads { client, server, downloads, .. } = &mut all;
    both(client, server, "one download ends", |_, server| {
        downloads.iter().any(|&(_, to)| !server.seen(to).sent.is_empty())
    });
    for &(_, to) in &all.downloads {
        assert!(all.sent_on(to) > 0, "one download ended before another began");
    }
    let Downloads { client, server, downloads, .. } = &mut all;
    both(client, server, "all downloads end", |client, server| {
        downloads.iter().all(|&(from, to)| {
            client.seen(from).received.len() == 4 + Downloads::<I>::LENGTH
                && server.seen(to).sent == [Ok(())]
        })
    });
}

/// Checks that nothing is lost if each turn is abandoned after one completion.
pub(crate) fn loses_nothing_with_one_completion_per_turn<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let pairs: Vec<_> = (0..6).map(|_| net.pair()).collect();
    let bytes = pattern(5, 40_000);
    let answer = pattern(6, 20_000);
    for &(from, to) in &pairs {
        net.send(from, &bytes);
        net.expect_sent(from, 1);
        net.io.shutdown(from);
        net.io.start(from);
        net.io.start(to);
        net.send(to, &answer);
    }
    let began = Instant::now();
    while !pairs.iter().all(|&(from, to)| {
        net.seen(to).ended
            && !net.seen(to).sent.is_empty()
            && net.seen(from).received.len() == answer.len()
    }) {
        assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}");
        net.wait(Duration::from_millis(100));
        net.next();
    }
    for &(from, to) in &pairs {
        assert!(net.seen(to).received == bytes);
        assert!(net.seen(from).received == answer);
    }
    // No connection is lost either.
    net.accepted.clear();
    for _ in 0..6 {
        net.io.connect(&net.addr.into(), None).unwrap();
    }
    while net.accepted.len() < 6 {
        assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}");
        net.wait(Duration::from_millis(100));
        net.next();
    }
}

/// Checks the same while every wait reports events of another connection.
pub(crate) fn one_completion_per_turn_serves_others_during_a_flood<I: Io>(case: &Case<'_, I>) {
    let mut flood = Flood::new(case);
    let bytes = pattern(7, 60_000);
    let (from, to) = flood.other;
    flood.server.io.stop(to);
    flood.client.send(from, &bytes);
    flood.client.expect_sent(from, 1);
    flood.client.io.shutdown(from);
    flood.server.io.start(to);
    let mut completions = 0;
    while !flood.server.seen(to).ended {
        flood.client.send(flood.flood.0, b"drop");
        flood.client.turn(Duration::ZERO);
        flood.server.wait(Duration::ZERO);
        completions += u64::from(flood.server.next().is_some());
        assert!(completions < 20_000, "the other is not served");
    }
    assert!(flood.server.seen(to).received == bytes);
}

/// Checks that counters only grow, and that they count waits and events.
pub(crate) fn counters_grow<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.started_pair();
    let mut last = net.io.counters();
    for _ in 0..5 {
        net.run_until_idle();
        net.send(from, b"data");
        net.drive("it is received", |_, token, kind| {
            token == to && matches!(kind, Kind::Received(_))
        });
        net.turn(Duration::ZERO);
        let now = net.io.counters();
        assert!(now.waits > last.waits, "{now:?} after {last:?}");
        assert!(now.events > last.events, "{now:?} after {last:?}");
        assert!(now.empty_waits >= last.empty_waits && now.empty_waits <= now.waits);
        assert!(now.spurious >= last.spurious && now.changes >= last.changes);
        assert!(now.overflows >= last.overflows);
        last = now;
    }
}

/// Checks that consecutive exchanges on a connection change no interest if the policy avoids
/// changes, even after a send that waited for space.
pub(crate) fn steady_exchanges_change_no_interest<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.started_pair();
    let long = Bytes::from(pattern(9, LONG));
    net.send_body(to, long.clone());
    net.expect_received(from, &long);
    net.run_until_idle();
    for round in 0..10 {
        let before = net.io.counters().changes;
        net.seen(from).received.clear();
        net.seen(to).received.clear();
        net.send(from, b"request");
        net.expect_received(to, b"request");
        net.send(to, b"response");
        net.expect_received(from, b"response");
        net.run_until_idle();
        let changes = net.io.counters().changes - before;
        // The first exchange may add missing interest.
        assert!(
            !case.keeps_interest || round == 0 || changes == 0,
            "{changes} changes in round {round}"
        );
    }
}
