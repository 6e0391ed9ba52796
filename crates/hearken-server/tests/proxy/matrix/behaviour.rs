//! The behaviour of clients and origins.

use crate::common::wire::{Field, Message};
use crate::common::{Connection, End, Framing, Kind, Peer, Recorder, ms};

use super::case::{
    Case, ClientBehaviour, Fault, IDS, PROBE, Phase, ServerBehaviour, ShortTimeouts,
};
use super::request::{Request, RequestKind};
use super::response::{Response, ResponseKind};

/// A request as an origin received it.
#[derive(Debug)]
pub(crate) struct OriginRecord {
    pub(crate) id: u64,
    pub(crate) complete: bool,
    pub(crate) errors: Option<String>,
}

/// The responses that a client received.
#[derive(Debug)]
pub(crate) struct ClientRecord {
    pub(crate) interim: Vec<Message>,
    /// Complete final responses.
    pub(crate) response_kind: Vec<Message>,
    /// The received part of an incomplete response.
    pub(crate) part: Option<Message>,
    /// The end of the connection, if it ended.
    pub(crate) end: Option<End>,
    /// Whether the client disconnected, so its responses are unknown.
    pub(crate) disconnected: bool,
    /// Whether the body was not sent because the final response came first.
    pub(crate) skipped: bool,
    /// Unexpected bytes after the last response.
    pub(crate) behind: Option<String>,
}

/// Runs the client of a case.
pub(crate) fn run_client(case: &Case, base: u64, mut connection: Connection) -> ClientRecord {
    let request = case.request(base);
    let mut bytes = request.bytes.clone();
    let mut kinds = vec![request.kind()];
    let mut start = 0;
    if case.request_kind == RequestKind::Pipelined {
        // The fault occurs in the second request.
        start = bytes.len();
        bytes.extend_from_slice(&case.request(base + 1).bytes);
        bytes.extend_from_slice(&case.request(base + 2).bytes);
        kinds = vec![request.kind(); 3];
    }
    let mut observed = ClientRecord {
        interim: Vec::new(),
        response_kind: Vec::new(),
        part: None,
        end: None,
        disconnected: false,
        skipped: false,
        behind: None,
    };
    connection.reader.kind = kinds[0];
    let fails = match case.client {
        ClientBehaviour::Fails(phase, fault) => Some((phase, fault)),
        _ => None,
    };
    let until = fails.map_or(bytes.len(), |(phase, _)| start + offset(&request, phase));
    let mut remaining = &bytes[..until];
    if request.expects && until > request.head {
        connection.send(&bytes[..request.head]);
        connection.receive_until(|reader| !matches!(reader.advance(), Ok(false)));
        remaining = &[];
        observed.skipped = true;
        if connection.is_complete() && connection.reader.message().status() < 200 {
            observed.interim.push(connection.reader.take());
            remaining = &bytes[request.head..until];
            observed.skipped = false;
        }
    }
    match case.client {
        ClientBehaviour::Trickles => connection.send_slowly(remaining),
        _ => connection.send(remaining),
    }
    match case.client {
        ClientBehaviour::ReadsSlowly => std::thread::sleep(ms(20)),
        ClientBehaviour::HalfCloses | ClientBehaviour::Fails(_, Fault::Ends) => {
            connection.shutdown_write();
        }
        ClientBehaviour::Fails(Phase::InAnswer, _) => connection.receive_until(|reader| {
            let _ = reader.advance();
            reader.has_head()
        }),
        ClientBehaviour::Fails(Phase::Before, Fault::Garbage) => {
            connection.send(b"\x16\x03\x01\x02 \r\n\r\n");
        }
        ClientBehaviour::Fails(Phase::InHead, Fault::Garbage) => {
            connection.send(b"\0\r\nX Y: \x01\r\n\r\n");
        }
        ClientBehaviour::Fails(_, Fault::Garbage) => connection.send(b"xyz\r\n\r\n"),
        _ => {}
    }
    match fails {
        Some((_, Fault::Closes)) => {
            observed.disconnected = true;
            return observed;
        }
        Some((_, Fault::Resets)) => {
            connection.reset();
            observed.disconnected = true;
            return observed;
        }
        _ => {}
    }
    for (index, kind) in kinds.iter().enumerate() {
        // The error response to an incomplete head is not a response to HEAD.
        let unknown = matches!(fails, Some((Phase::Before | Phase::InHead, _)));
        let refused = unknown && index == kinds.len().min(2) - 1;
        connection.reader.kind = if refused { Kind::Response } else { *kind };
        let mut closing = false;
        while let Some(message) = connection.message() {
            if message.status() < 200 && message.status() != 101 {
                observed.interim.push(message);
                continue;
            }
            closing = !message.keeps() || message.status() == 101;
            observed.response_kind.push(message);
            break;
        }
        if closing || connection.end.is_some() {
            break;
        }
    }
    finish(case, base, connection, &mut observed, kinds.len());
    observed
}

/// Checks the bytes after the last response, and sends a further request if the connection is persistent.
fn finish(
    case: &Case,
    base: u64,
    mut connection: Connection,
    observed: &mut ClientRecord,
    asked: usize,
) {
    observed.end.clone_from(&connection.end);
    if connection.reader.has_head() {
        observed.part = Some(connection.reader.message().clone());
        return;
    }
    let Some(last) = observed.response_kind.last() else { return };
    if last.status() == 101 {
        connection.send(format!("ping {base}"));
        let pong = format!("pong {base}");
        let received = connection.read_raw(pong.len());
        if received != pong.as_bytes() {
            observed.behind =
                Some(format!("in the tunnel {:?}", String::from_utf8_lossy(&received)));
        }
        return;
    }
    let half =
        matches!(case.client, ClientBehaviour::HalfCloses | ClientBehaviour::Fails(_, Fault::Ends));
    let all = observed.response_kind.len() == asked;
    if observed.end.is_none() && last.keeps() && !half && all {
        // With short timeouts, a busy machine may be too late for another request.
        let hurried = case.short_timeouts() != ShortTimeouts::Neither;
        if matches!(case.client, ClientBehaviour::Fails(..)) || observed.skipped || hurried {
            return;
        }
        // On a persistent connection the next request gets its own response.
        let probe = case.request(base + PROBE);
        connection.send(&probe.bytes);
        let got = connection.final_response(probe.kind());
        let expected = case.response(base + PROBE);
        observed.behind = match got {
            Some(got) if got.body == expected.body => None,
            // An idle connection may be closed at any time.
            None if connection.end == Some(End::Closed) || connection.end == Some(End::Reset) => {
                (!connection.reader.is_idle()).then(|| format!("part of {:?}", connection.reader))
            }
            got => Some(format!("{got:?}, {:?}", connection.end)),
        };
    } else {
        match connection.read_end() {
            Ok(End::Hangs) => observed.behind = Some("the connection is not closed".to_owned()),
            Ok(_) => {}
            Err(more) => observed.behind = Some(more),
        }
    }
}

/// Returns the number of bytes of a request before this phase.
fn offset(request: &Request, phase: Phase) -> usize {
    match phase {
        Phase::AtHead | Phase::Before => 0,
        Phase::InHead => request.head / 2,
        Phase::AfterHead => request.head,
        Phase::InBody => request.head + (request.bytes.len() - request.head) / 2,
        Phase::BetweenChunks => request.chunks.last().copied().unwrap_or(request.head),
        Phase::After | Phase::InAnswer => request.bytes.len(),
    }
}

/// Runs the origin of all cases on one connection.
pub(crate) fn serve(mut peer: Peer, cases: &[Case], notes: &Recorder<OriginRecord>) {
    loop {
        let connection = &mut peer.connection;
        connection.receive_until(|reader| {
            let _ = reader.advance();
            reader.has_head() || reader.advance().is_err()
        });
        if connection.end == Some(End::Hangs) && connection.reader.is_idle() {
            // Closing the connection could race with its reuse.
            (connection.end, connection.broken) = (None, false);
            continue;
        }
        if !connection.reader.has_head() {
            if !connection.reader.is_idle() || matches!(connection.end, Some(End::Malformed(_))) {
                let errors = Some(format!("malformed request: {:?}", connection.reader));
                notes.add(OriginRecord { id: u64::MAX, complete: false, errors });
            }
            return;
        }
        let id = connection.reader.message().field("x-id").and_then(|id| id.parse().ok());
        let case = id.and_then(|id: u64| cases.get(usize::try_from(id / IDS).ok()?));
        let (Some(id), Some(case)) = (id, case) else {
            let errors = Some(format!("unknown request: {:?}", connection.reader.message()));
            return notes.add(OriginRecord { id: u64::MAX, complete: false, errors });
        };
        let (request, response, server) = (case.request(id), case.response(id), case.server(id));
        let early = matches!(
            server,
            ServerBehaviour::Early | ServerBehaviour::EarlyEnds | ServerBehaviour::EarlyCloses
        );
        let at_head = matches!(server, ServerBehaviour::Fails(Phase::AtHead, _));
        if request.expects && !early && !at_head {
            connection.send("HTTP/1.1 100 Continue\r\n\r\n");
        }
        if early {
            connection.send(&response.bytes);
        }
        let complete = match server {
            ServerBehaviour::EarlyCloses | ServerBehaviour::Fails(Phase::AtHead, _) => {
                connection.is_complete()
            }
            ServerBehaviour::EarlyEnds => {
                connection.shutdown_write();
                connection.step()
            }
            _ => connection.step(),
        };
        let mut errors = difference(connection.reader.message(), &request, complete);
        // With a short timeout, the proxy may abandon the request before this origin sends 100.
        let hurried = matches!(case.short_timeouts(), ShortTimeouts::Server | ShortTimeouts::Both)
            && request.expects;
        let may_be_incomplete = matches!(case.client, ClientBehaviour::Fails(..)) || hurried;
        let waits = !early && !at_head;
        if !complete && waits && !may_be_incomplete {
            let (end, got) = (&connection.end, connection.reader.message());
            errors.get_or_insert(format!("an incomplete request: {end:?}, {got:?}"));
        }
        notes.add(OriginRecord { id, complete, errors });
        if !complete && !at_head {
            return;
        }
        connection.reader.take();
        match respond(peer, server, &response, id, notes) {
            Some(kept) if !response.closes => peer = kept,
            _ => return,
        }
    }
}

/// Sends the response of a case. Returns the connection if it is persistent.
fn respond(
    mut peer: Peer,
    server: ServerBehaviour,
    response: &Response,
    id: u64,
    notes: &Recorder<OriginRecord>,
) -> Option<Peer> {
    let connection = &mut peer.connection;
    let endless = |connection: &mut Connection, text: &str, what: &str| {
        let block = text.repeat(1 + 8000 / text.len());
        let max = connection.sent + (32 << 20);
        while !connection.broken && connection.sent < max {
            connection.send(&block);
        }
        if !connection.broken {
            let errors = Some(format!("the proxy accepted 32 MiB of {what}"));
            notes.add(OriginRecord { id, complete: true, errors });
        }
    };
    match server {
        ServerBehaviour::Normal => connection.send(&response.bytes),
        ServerBehaviour::Trickles => connection.send_slowly(&response.bytes),
        ServerBehaviour::Early => {}
        ServerBehaviour::EarlyEnds | ServerBehaviour::EarlyCloses => return None,
        ServerBehaviour::Doubles => {
            let mut both = response.bytes.clone();
            both.extend_from_slice(
                &super::response::build_response(ResponseKind::Small, 4_000_000_007, false, false)
                    .bytes,
            );
            connection.send(both);
            return Some(peer);
        }
        ServerBehaviour::Exceeds => {
            let mut more = response.bytes.clone();
            more.extend_from_slice(b"and more than that");
            connection.send(more);
            return Some(peer);
        }
        ServerBehaviour::EndlessInterim => {
            endless(
                connection,
                "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n",
                "interim responses",
            );
            return None;
        }
        ServerBehaviour::EndlessHead => {
            connection.send(&response.bytes[..response.from]);
            connection.send("HTTP/1.1 200 OK\r\n");
            endless(connection, "X-Fill: more of it\r\n", "fields");
            return None;
        }
        ServerBehaviour::EndlessExtension => {
            connection.send(&response.bytes[..response.chunks[1]]);
            connection.send("5;x=");
            endless(connection, "more", "chunk extension");
            return None;
        }
        ServerBehaviour::EndlessTrailers => {
            connection.send(&response.bytes[..*response.chunks.last()?]);
            connection.send("0\r\n");
            endless(connection, "X-Fill: more of it\r\n", "trailers");
            return None;
        }
        ServerBehaviour::Fails(phase, fault) => {
            let until = match phase {
                Phase::AtHead => 0,
                Phase::InHead => response.from + (response.head - response.from) / 2,
                Phase::AfterHead => response.head,
                Phase::InBody => response.head + (response.bytes.len() - response.head) / 2,
                Phase::BetweenChunks => *response.chunks.last()?,
                _ => response.from,
            };
            connection.send(&response.bytes[..until]);
            match (fault, phase) {
                (Fault::Resets, _) => {
                    peer.connection.reset();
                    return None;
                }
                (Fault::Stalls, _) => {
                    // The proxy must close the connection.
                    if let (_, End::Hangs) = connection.drain() {
                        let errors = Some("the proxy does not time out".to_owned());
                        notes.add(OriginRecord { id, complete: true, errors });
                    }
                }
                (Fault::Garbage, Phase::InHead) => connection.send(b"\0\r\nX Y: \x01\r\n\r\n"),
                (Fault::Garbage, Phase::BetweenChunks) => connection.send(b"xyz\r\n\r\n"),
                (Fault::Garbage, _) => connection.send(b"\x16\x03\x01\x02 \r\n\r\n"),
                _ => return None,
            }
            if fault == Fault::Garbage {
                connection.shutdown_write();
                connection.drain();
            }
            return None;
        }
    }
    if response.status == 101 {
        let ping = format!("ping {id}");
        if connection.read_raw(ping.len()) == ping.as_bytes() {
            connection.send(format!("pong {id}"));
        }
        return None;
    }
    if response.closes {
        connection.shutdown_write();
        connection.drain();
    }
    Some(peer)
}

/// Returns a difference between a received request and the request that was sent.
fn difference(got: &Message, request: &Request, complete: bool) -> Option<String> {
    let errors = |what: &str| Some(format!("{what} in {got:?}"));
    if got.method() != request.method || got.target() != request.target {
        return errors("another request line");
    }
    if got.field("host").as_deref() != Some("site.test") {
        return errors("a different Host");
    }
    if end_to_end_fields(&got.fields) != request.fields {
        return errors("different fields");
    }
    if !request.body.starts_with(&got.body) {
        return errors("a different body");
    }
    if complete && (got.body != request.body || got.trailers != request.trailers) {
        return errors(if got.body == request.body {
            "different trailers"
        } else {
            "an incomplete body"
        });
    }
    if !request.has_body() && !matches!(got.framing, Framing::None) {
        return errors("an unsent body");
    }
    None
}

/// Returns the fields that are neither hop-by-hop nor about framing nor set by the proxy.
pub(crate) fn end_to_end_fields(fields: &[Field]) -> Vec<Field> {
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
