//! Fairness, and turns that are not taken to their end.

use std::time::{Duration, Instant};

use bytes::Bytes;
use hearken::Token;
use hearken::io::Io;

use crate::Case;
use crate::net::{Kind, LONG, Net, between, both, file, part, pattern};

/// Who floods, and the other, each with the side that connected first.
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

    /// Has `serve` handle the flood's completions in the server, while the client keeps up with it.
    /// The other asks in the middle of the first turn, and must be heard while `goes_on` holds of
    /// the server.
    fn run(
        mut self,
        mut serve: impl FnMut(&mut Net<I>, Token, Kind),
        goes_on: impl Fn(&mut Net<I>, Token) -> bool,
    ) {
        let began = Instant::now();
        let mut asked = false;
        loop {
            self.server.wait(Duration::ZERO);
            let mut more = true;
            while more {
                let completion = self.server.next();
                more = completion.is_some();
                if let Some((on, kind)) = completion {
                    if on == self.other.1 && matches!(kind, Kind::Received(_)) {
                        return;
                    }
                    serve(&mut self.server, on, kind);
                }
                if !std::mem::replace(&mut asked, true) {
                    self.client.send(self.other.0, b"request");
                }
                self.client.turn(Duration::ZERO);
                assert!(
                    goes_on(&mut self.server, self.flood.1),
                    "the other was not served before the flood's end"
                );
            }
            assert!(began.elapsed() < Duration::from_secs(20), "waited in vain");
        }
    }
}

/// Of a connection that sends without end.
pub(crate) fn flood_received<I: Io>(case: &Case<'_, I>) {
    let mut flood = Flood::new(case);
    let from = flood.flood.0;
    flood.client.send_body(from, Bytes::from(pattern(1, LONG)));
    flood.client.turn(Duration::ZERO);
    flood.run(|_, _, _| {}, |server, on| server.seen(on).received.len() < LONG);
}

/// Where a turn's share is small: of a connection for which all is there already, the end included.
pub(crate) fn flood_that_ends<I: Io>(case: &Case<'_, I>) {
    let Some(share) = case.share else {
        return;
    };
    let mut flood = Flood::new(case);
    let (from, to) = flood.flood;
    flood.server.io.stop(to);
    flood.client.send(from, &pattern(8, 50 * share));
    flood.client.sends(from, 1);
    flood.client.io.shutdown(from);
    flood.server.settle();
    flood.server.io.start(to);
    flood.run(|_, _, _| {}, |server, on| server.seen(on).received.len() < 10 * share);
}

/// As above, each piece being answered before another is received, as servers do that bound their
/// memory.
pub(crate) fn flood_answered<I: Io>(case: &Case<'_, I>) {
    let mut flood = Flood::new(case);
    let from = flood.flood.0;
    flood.client.send_body(from, Bytes::from(pattern(2, LONG)));
    flood.client.turn(Duration::ZERO);
    flood.run(
        |server, on, kind| match kind {
            Kind::Received(_) => {
                server.io.stop(on);
                server.send(on, b"answer");
            }
            Kind::Sent => server.io.start(on),
            _ => {}
        },
        |server, on| server.seen(on).received.len() < LONG,
    );
}

/// Of a connection that is sent the next piece whenever one is sent, without end.
pub(crate) fn flood_sent<I: Io>(case: &Case<'_, I>) {
    let piece = Bytes::from(pattern(3, 1 << 14));
    let mut flood = Flood::new(case);
    let to = flood.flood.1;
    flood.server.send_body(to, piece.clone());
    flood.run(
        |server, on, kind| {
            if kind == Kind::Sent {
                server.send_body(on, piece.clone());
            }
        },
        |server, on| server.seen(on).sent.len() < LONG >> 14,
    );
}

/// Of a connection that is sent a long file, as fast as it reads.
pub(crate) fn flood_of_a_file<I: Io>(case: &Case<'_, I>) {
    let mut flood = Flood::new(case);
    let on_disk = file(&pattern(4, LONG));
    let to = flood.flood.1;
    let body = part(&on_disk, 0, LONG as u64);
    flood.server.send_with(to, b"head", body);
    flood.run(|_, _, _| {}, |server, on| server.seen(on).sent.is_empty());
}

/// Clients that download one file, and another that sends requests.
struct Downloads<I: Io> {
    client: Net<I>,
    server: Net<I>,
    /// Each with the side of the client first.
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
        client.settle();
        server.settle();
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
    fn sent_on(&self, on: Token) -> u64 {
        self.server.io.delivered(on) + self.server.io.undelivered(on)
    }

    fn sent(&self) -> u64 {
        self.downloads.iter().map(|&(_, to)| self.sent_on(to)).sum()
    }
}

/// A request that arrives amid many downloads waits for one turn's large transfers, not for a share of each
/// download; neither does it wait for the start of all.
pub(crate) fn requests_before_downloads<I: Io>(case: &Case<'_, I>) {
    let Some(share) = case.hurry else {
        return;
    };
    let mut all = Downloads::new(case);
    all.send();
    let began = all.sent();
    assert!(began <= 3 * share as u64, "{began} bytes were sent at once");
    for round in 0..5 {
        let before = all.sent();
        // The turn begins without the request.
        all.server.wait(Duration::ZERO);
        all.client.send(all.other.0, b"request");
        all.client.turn(Duration::ZERO);
        let mut served = false;
        while !served {
            match all.server.next() {
                Some((on, kind)) => served = on == all.other.1 && kind == Kind::Received(7),
                None => all.server.wait(Duration::ZERO),
            }
        }
        let sent = all.sent() - before;
        assert!(sent <= 3 * share as u64, "{sent} bytes were sent first, in round {round}");
    }
}

/// Downloads that have no time in a turn continue in a later one, in turn.
pub(crate) fn downloads_take_turns<I: Io>(case: &Case<'_, I>) {
    if case.hurry.is_none() {
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

/// Nothing is lost where each turn is left after one completion.
pub(crate) fn one_completion_at_a_time<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let pairs: Vec<_> = (0..6).map(|_| net.pair()).collect();
    let bytes = pattern(5, 40_000);
    let answer = pattern(6, 20_000);
    for &(from, to) in &pairs {
        net.send(from, &bytes);
        net.sends(from, 1);
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
        assert!(began.elapsed() < Duration::from_secs(20), "waited in vain");
        net.wait(Duration::from_millis(100));
        net.next();
    }
    for &(from, to) in &pairs {
        assert!(net.seen(to).received == bytes);
        assert!(net.seen(from).received == answer);
    }
    // Nor are connections.
    net.accepted.clear();
    for _ in 0..6 {
        net.io.connect(&net.addr.into(), None).unwrap();
    }
    while net.accepted.len() < 6 {
        assert!(began.elapsed() < Duration::from_secs(20), "waited in vain");
        net.wait(Duration::from_millis(100));
        net.next();
    }
}

/// As above, while another's events come at every wait.
pub(crate) fn one_at_a_time_amid_a_flood<I: Io>(case: &Case<'_, I>) {
    let mut flood = Flood::new(case);
    let bytes = pattern(7, 60_000);
    let (from, to) = flood.other;
    flood.server.io.stop(to);
    flood.client.send(from, &bytes);
    flood.client.sends(from, 1);
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

/// Counters only grow, and count waits and what they bring.
pub(crate) fn counters_grow<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.started_pair();
    let mut last = net.io.counters();
    for _ in 0..5 {
        net.settle();
        net.send(from, b"data");
        net.drive("it is received", |_, on, kind| on == to && matches!(kind, Kind::Received(_)));
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

/// One exchange after another on a connection needs no change of interest, where the policy is to
/// change it seldom; not even after one that had to wait for room.
pub(crate) fn steady<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.started_pair();
    let long = Bytes::from(pattern(9, LONG));
    net.send_body(to, long.clone());
    net.receives(from, &long);
    net.settle();
    for round in 0..10 {
        let before = net.io.counters().changes;
        net.seen(from).received.clear();
        net.seen(to).received.clear();
        net.send(from, b"request");
        net.receives(to, b"request");
        net.send(to, b"response");
        net.receives(from, b"response");
        net.settle();
        let changes = net.io.counters().changes - before;
        // The first may find out what the others then know.
        assert!(!case.steady || round == 0 || changes == 0, "{changes} changes in round {round}");
    }
}
