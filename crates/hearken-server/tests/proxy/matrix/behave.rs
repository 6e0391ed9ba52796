//! What clients and origins do.

use crate::harness::wire::{Field, Message};
use crate::harness::{End, Framing, Kind, Link, Notes, Peer, ms};

use super::answer::{Answer, Answers};
use super::ask::{Ask, Asks};
use super::case::{Case, Client, Fault, IDS, PROBE, Phase, Server, Short};

/// What an origin saw of a request.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) id: u64,
    pub(crate) whole: bool,
    pub(crate) wrong: Option<String>,
}

/// What a client heard.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) interim: Vec<Message>,
    /// Whole final responses.
    pub(crate) answers: Vec<Message>,
    /// What there is of one that is not whole.
    pub(crate) part: Option<Message>,
    /// How the connection ended, if it did.
    pub(crate) end: Option<End>,
    /// It left, so that nothing is known.
    pub(crate) left: bool,
    /// It did not send the body, since the answer came first.
    pub(crate) skipped: bool,
    /// What came behind the last response, which should be nothing.
    pub(crate) behind: Option<String>,
}

/// Does what the case's client does.
pub(crate) fn ask_of(case: &Case, base: u64, mut link: Link) -> Heard {
    let ask = case.ask(base);
    let mut bytes = ask.bytes.clone();
    let mut kinds = vec![ask.kind()];
    let mut start = 0;
    if case.asks == Asks::Pipelined {
        // What goes wrong goes wrong in the second.
        start = bytes.len();
        bytes.extend_from_slice(&case.ask(base + 1).bytes);
        bytes.extend_from_slice(&case.ask(base + 2).bytes);
        kinds = vec![ask.kind(); 3];
    }
    let mut heard = Heard {
        interim: Vec::new(),
        answers: Vec::new(),
        part: None,
        end: None,
        left: false,
        skipped: false,
        behind: None,
    };
    link.reader.kind = kinds[0];
    let fails = match case.client {
        Client::Fails(phase, fault) => Some((phase, fault)),
        _ => None,
    };
    let until = fails.map_or(bytes.len(), |(phase, _)| start + offset(&ask, phase));
    let mut left = &bytes[..until];
    if ask.expects && until > ask.head {
        link.send(&bytes[..ask.head]);
        link.receive_until(|reader| !matches!(reader.advance(), Ok(false)));
        left = &[];
        heard.skipped = true;
        if link.is_whole() && link.reader.message().status() < 200 {
            heard.interim.push(link.reader.take());
            left = &bytes[ask.head..until];
            heard.skipped = false;
        }
    }
    match case.client {
        Client::Trickles => link.trickle(left),
        _ => link.send(left),
    }
    match case.client {
        Client::ReadsSlowly => std::thread::sleep(ms(20)),
        Client::HalfCloses | Client::Fails(_, Fault::Ends) => link.end_sending(),
        Client::Fails(Phase::InAnswer, _) => link.receive_until(|reader| {
            let _ = reader.advance();
            reader.has_head()
        }),
        Client::Fails(Phase::Before, Fault::Garbage) => link.send(b"\x16\x03\x01\x02 \r\n\r\n"),
        Client::Fails(Phase::InHead, Fault::Garbage) => link.send(b"\0\r\nX Y: \x01\r\n\r\n"),
        Client::Fails(_, Fault::Garbage) => link.send(b"xyz\r\n\r\n"),
        _ => {}
    }
    match fails {
        Some((_, Fault::Closes)) => {
            heard.left = true;
            return heard;
        }
        Some((_, Fault::Resets)) => {
            link.reset();
            heard.left = true;
            return heard;
        }
        _ => {}
    }
    for (index, kind) in kinds.iter().enumerate() {
        // A head that is not whole has no method yet.
        let unknown = matches!(fails, Some((Phase::Before | Phase::InHead, _)));
        let refused = unknown && index == kinds.len().min(2) - 1;
        link.reader.kind = if refused { Kind::Response } else { *kind };
        let mut closing = false;
        while let Some(message) = link.message() {
            if message.status() < 200 && message.status() != 101 {
                heard.interim.push(message);
                continue;
            }
            closing = !message.keeps() || message.status() == 101;
            heard.answers.push(message);
            break;
        }
        if closing || link.end.is_some() {
            break;
        }
    }
    finish(case, base, link, &mut heard, kinds.len());
    heard
}

/// That nothing follows, or the right thing.
fn finish(case: &Case, base: u64, mut link: Link, heard: &mut Heard, asked: usize) {
    heard.end.clone_from(&link.end);
    if link.reader.has_head() {
        heard.part = Some(link.reader.message().clone());
        return;
    }
    let Some(last) = heard.answers.last() else { return };
    if last.status() == 101 {
        link.send(format!("ping {base}"));
        let pong = format!("pong {base}");
        let came = link.raw(pong.len());
        if came != pong.as_bytes() {
            heard.behind = Some(format!("in the tunnel {:?}", String::from_utf8_lossy(&came)));
        }
        return;
    }
    let half = matches!(case.client, Client::HalfCloses | Client::Fails(_, Fault::Ends));
    let all = heard.answers.len() == asked;
    if heard.end.is_none() && last.keeps() && !half && all {
        // With time-outs that are short, a busy machine is late for the next one.
        let hurried = case.short() != Short::Nothing;
        if matches!(case.client, Client::Fails(..)) || heard.skipped || hurried {
            return;
        }
        // Where the connection is kept, the next request has its own answer.
        let probe = case.ask(base + PROBE);
        link.send(&probe.bytes);
        let got = link.response(probe.kind());
        let expected = case.answer(base + PROBE);
        heard.behind = match got {
            Some(got) if got.body == expected.body => None,
            // It may be closed at any time.
            None if link.end == Some(End::Closed) || link.end == Some(End::Reset) => {
                (!link.reader.is_idle()).then(|| format!("part of {:?}", link.reader))
            }
            got => Some(format!("{got:?}, {:?}", link.end)),
        };
    } else {
        match link.ending() {
            Ok(End::Hangs) => heard.behind = Some("it is not closed".to_owned()),
            Ok(_) => {}
            Err(more) => heard.behind = Some(more),
        }
    }
}

/// How much of a request is sent until this place.
fn offset(ask: &Ask, phase: Phase) -> usize {
    match phase {
        Phase::AtHead | Phase::Before => 0,
        Phase::InHead => ask.head / 2,
        Phase::AfterHead => ask.head,
        Phase::InBody => ask.head + (ask.bytes.len() - ask.head) / 2,
        Phase::BetweenChunks => ask.chunks.last().copied().unwrap_or(ask.head),
        Phase::After | Phase::InAnswer => ask.bytes.len(),
    }
}

/// Does what the cases' origins do, on one connection.
pub(crate) fn serve(mut peer: Peer, cases: &[Case], notes: &Notes<Seen>) {
    loop {
        let link = &mut peer.link;
        link.receive_until(|reader| {
            let _ = reader.advance();
            reader.has_head() || reader.advance().is_err()
        });
        if link.end == Some(End::Hangs) && link.reader.is_idle() {
            // To close it would be to close it as it is used again, perhaps.
            (link.end, link.broken) = (None, false);
            continue;
        }
        if !link.reader.has_head() {
            if !link.reader.is_idle() || matches!(link.end, Some(End::Malformed(_))) {
                let wrong = Some(format!("no request: {:?}", link.reader));
                notes.add(Seen { id: u64::MAX, whole: false, wrong });
            }
            return;
        }
        let id = link.reader.message().field("x-id").and_then(|id| id.parse().ok());
        let case = id.and_then(|id: u64| cases.get(usize::try_from(id / IDS).ok()?));
        let (Some(id), Some(case)) = (id, case) else {
            let wrong = Some(format!("whose request? {:?}", link.reader.message()));
            return notes.add(Seen { id: u64::MAX, whole: false, wrong });
        };
        let (ask, answer, server) = (case.ask(id), case.answer(id), case.server(id));
        let early = matches!(server, Server::Early | Server::EarlyEnds | Server::EarlyCloses);
        let at_head = matches!(server, Server::Fails(Phase::AtHead, _));
        if ask.expects && !early && !at_head {
            link.send("HTTP/1.1 100 Continue\r\n\r\n");
        }
        if early {
            link.send(&answer.bytes);
        }
        let whole = match server {
            Server::EarlyCloses | Server::Fails(Phase::AtHead, _) => link.is_whole(),
            Server::EarlyEnds => {
                link.end_sending();
                link.step()
            }
            _ => link.step(),
        };
        let mut wrong = difference(link.reader.message(), &ask, whole);
        // Or the proxy has, as its time-out is short and we were late with our 100.
        let hurried = matches!(case.short(), Short::Server | Short::Both) && ask.expects;
        let left = matches!(case.client, Client::Fails(..)) || hurried;
        let waits = !early && !at_head;
        if !whole && waits && !left {
            let (end, got) = (&link.end, link.reader.message());
            wrong.get_or_insert(format!("not all of what its client sent: {end:?}, {got:?}"));
        }
        notes.add(Seen { id, whole, wrong });
        if !whole && !at_head {
            return;
        }
        link.reader.take();
        match behave(peer, server, &answer, id, notes) {
            Some(kept) if !answer.closes => peer = kept,
            _ => return,
        }
    }
}

/// Answers; the connection, if it is kept.
fn behave(
    mut peer: Peer,
    server: Server,
    answer: &Answer,
    id: u64,
    notes: &Notes<Seen>,
) -> Option<Peer> {
    let link = &mut peer.link;
    let endless = |link: &mut Link, text: &str, what: &str| {
        let block = text.repeat(1 + 8000 / text.len());
        let most = link.sent + (32 << 20);
        while !link.broken && link.sent < most {
            link.send(&block);
        }
        if !link.broken {
            let wrong = Some(format!("32 MiB of {what} were taken"));
            notes.add(Seen { id, whole: true, wrong });
        }
    };
    match server {
        Server::Normal => link.send(&answer.bytes),
        Server::Trickles => link.trickle(&answer.bytes),
        Server::Early => {}
        Server::EarlyEnds | Server::EarlyCloses => return None,
        Server::Doubles => {
            let mut both = answer.bytes.clone();
            both.extend_from_slice(
                &super::answer::answer(Answers::Small, 4_000_000_007, false, false).bytes,
            );
            link.send(both);
            return Some(peer);
        }
        Server::Exceeds => {
            let mut more = answer.bytes.clone();
            more.extend_from_slice(b"and more than that");
            link.send(more);
            return Some(peer);
        }
        Server::EndlessInterim => {
            endless(link, "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", "interim responses");
            return None;
        }
        Server::EndlessHead => {
            link.send(&answer.bytes[..answer.from]);
            link.send("HTTP/1.1 200 OK\r\n");
            endless(link, "X-Fill: more of it\r\n", "fields");
            return None;
        }
        Server::EndlessExtension => {
            link.send(&answer.bytes[..answer.chunks[1]]);
            link.send("5;x=");
            endless(link, "more", "chunk extension");
            return None;
        }
        Server::EndlessTrailers => {
            link.send(&answer.bytes[..*answer.chunks.last()?]);
            link.send("0\r\n");
            endless(link, "X-Fill: more of it\r\n", "trailers");
            return None;
        }
        Server::Fails(phase, fault) => {
            let until = match phase {
                Phase::AtHead => 0,
                Phase::InHead => answer.from + (answer.head - answer.from) / 2,
                Phase::AfterHead => answer.head,
                Phase::InBody => answer.head + (answer.bytes.len() - answer.head) / 2,
                Phase::BetweenChunks => *answer.chunks.last()?,
                _ => answer.from,
            };
            link.send(&answer.bytes[..until]);
            match (fault, phase) {
                (Fault::Resets, _) => {
                    peer.link.reset();
                    return None;
                }
                (Fault::Stalls, _) => {
                    // Given up by the proxy, and not by us.
                    if let (_, End::Hangs) = link.drain() {
                        let wrong = Some("the proxy waits for ever".to_owned());
                        notes.add(Seen { id, whole: true, wrong });
                    }
                }
                (Fault::Garbage, Phase::InHead) => link.send(b"\0\r\nX Y: \x01\r\n\r\n"),
                (Fault::Garbage, Phase::BetweenChunks) => link.send(b"xyz\r\n\r\n"),
                (Fault::Garbage, _) => link.send(b"\x16\x03\x01\x02 \r\n\r\n"),
                _ => return None,
            }
            if fault == Fault::Garbage {
                link.end_sending();
                link.drain();
            }
            return None;
        }
    }
    if answer.status == 101 {
        let ping = format!("ping {id}");
        if link.raw(ping.len()) == ping.as_bytes() {
            link.send(format!("pong {id}"));
        }
        return None;
    }
    if answer.closes {
        link.end_sending();
        link.drain();
    }
    Some(peer)
}

/// What of a request is not as the client sent it.
fn difference(got: &Message, ask: &Ask, whole: bool) -> Option<String> {
    let wrong = |what: &str| Some(format!("{what} in {got:?}"));
    if got.method() != ask.method || got.target() != ask.target {
        return wrong("another request line");
    }
    if got.field("host").as_deref() != Some("site.test") {
        return wrong("another host");
    }
    if passed(&got.fields) != ask.fields {
        return wrong("other fields");
    }
    if !ask.body.starts_with(&got.body) {
        return wrong("another body");
    }
    if whole && (got.body != ask.body || got.trailers != ask.trailers) {
        return wrong(if got.body == ask.body { "other trailers" } else { "not all of the body" });
    }
    if !ask.has_body() && !matches!(got.framing, Framing::None) {
        return wrong("a body that nobody sent");
    }
    None
}

/// Fields without those that belong to a connection, to framing, or to the proxy.
pub(crate) fn passed(fields: &[Field]) -> Vec<Field> {
    const OURS: &[&str] = &[
        "host",
        "via",
        "forwarded",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-proto",
        "connection",
        "content-length",
        "transfer-encoding",
        "upgrade",
        "expect",
        "te",
        "trailer",
    ];
    fields.iter().filter(|(name, _)| !OURS.contains(&name.as_str())).cloned().collect()
}
