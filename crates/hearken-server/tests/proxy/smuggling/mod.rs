//! Request smuggling: what several readers would take apart differently is not passed on.
//!
//! Each spelling of each kind is sent through the proxy to an origin that notes the bytes that it saw.
//! A strict reader and many that are not have to find the same messages in them, as many as the proxy
//! had answers for, each with one Via line of the proxy's. And what an origin sends is for its client one
//! whole response, or a clean error.

mod kinds;
mod reading;

use crate::Test;
use crate::harness::wire::find;
use crate::harness::{End, Kind, Link, Notes, Origin, Way, latin1};
use reading::{READINGS, Side, Wrong};

pub(crate) const TESTS: &[(&str, Test)] = &[
    ("smuggling::requests", requests),
    ("smuggling::responses", responses),
    ("smuggling::readings_differ", readings_differ),
];

/// Without a proxy, the readings do find different things in nearly all of it: the suite can fail.
fn readings_differ(_: &Way) {
    let (mut kinds, mut spellings, mut found) = (0, 0, 0);
    for kind in kinds::all() {
        let mut wrong = Vec::new();
        for spelling in &kind.spellings {
            let before = wrong.len();
            compare(kind.name, spelling, Side::Requests, &mut wrong);
            wrong.retain(|what: &String| !what.contains("Via lines"));
            found += usize::from(wrong.len() > before);
            spellings += 1;
        }
        kinds += usize::from(!wrong.is_empty());
    }
    assert!(kinds >= 20 && found * 10 >= spellings * 6, "{kinds} kinds, {found} of {spellings}");
}

fn requests(way: &Way) {
    let mut wrong: Vec<String> = Vec::new();
    for kind in kinds::all() {
        // One proxy for each kind, so that what one spelling leaves in a connection meets the next.
        let notes = Notes::new();
        let bytes = notes.clone();
        let origin = Origin::new(move |mut peer| {
            peer.link.record();
            while let Some(request) = peer.request() {
                let body = if request.method() == "HEAD" { "" } else { "fine" };
                peer.link.send(format!(
                    "HTTP/1.1 200 OK\r\nX-Origin: 1\r\nContent-Length: 4\r\n\r\n{body}"
                ));
            }
            bytes.add(peer.link.recorded().to_vec());
        });
        let proxy = way.proxy(&[origin.addr()], |_| ());
        let mut answered = 0;
        for (number, spelling) in kind.spellings.iter().enumerate() {
            answered += send(&mut proxy.connect(), spelling).unwrap_or_else(|what| {
                wrong.push(format!("{} {number}: {what}", kind.name));
                0
            });
            // Who comes next has its own answer.
            let mut victim = proxy.connect();
            victim.send("GET /victim HTTP/1.1\r\nHost: site.test\r\n\r\n");
            match victim.response(Kind::Response) {
                Some(answer) if answer.text() == "fine" => answered += 1,
                other => wrong.push(format!("{} {number}: the next has {other:?}", kind.name)),
            }
        }
        proxy.end();
        origin.end();
        let mut had = 0;
        for bytes in &notes.take() {
            had += compare(kind.name, bytes, Side::Requests, &mut wrong);
        }
        if had != answered {
            wrong.push(format!("{}: {had} messages for {answered} answers", kind.name));
        }
    }
    fail(wrong);
}

/// Sends it, and tells how many answers of the origin's there were.
fn send(link: &mut Link, spelling: &[u8]) -> Result<usize, String> {
    link.send(spelling);
    link.end_sending();
    let mut answered = 0;
    let head = spelling.starts_with(b"HEAD ");
    let mut kind = if head { Kind::Bodiless } else { Kind::Response };
    while let Some(answer) = link.response(kind) {
        let origin = answer.field("x-origin").is_some();
        answered += usize::from(origin);
        if !origin && answer.status() < 400 {
            return Err(format!("{answer:?}"));
        }
        kind = Kind::Response;
    }
    match &link.end {
        Some(End::Closed | End::Reset) if link.reader.is_idle() => Ok(answered),
        end => Err(format!("it ends with {end:?} in {:?}", link.reader)),
    }
}

/// Whether all readings find the same; how many messages that are.
fn compare(name: &str, bytes: &[u8], side: Side, wrong: &mut Vec<String>) -> usize {
    let (strict, error) = READINGS[0].read(bytes, side);
    let cut = error == Some(Wrong::Cut);
    for reading in READINGS {
        let (seen, error) = reading.read(bytes, side);
        // A request that its client did not complete is cut for all.
        if seen != strict
            || (error == Some(Wrong::Cut)) != cut
            || matches!(error, Some(Wrong::Bad(_)))
        {
            let (name_of, text) = (reading.name, latin1(bytes));
            wrong.push(format!("{name}, read with {name_of}: {error:?} in {text:?}"));
            break;
        }
    }
    if side == Side::Requests {
        for seen in strict.iter().filter(|seen| seen.via != 1) {
            wrong.push(format!("{name}: {} Via lines in {seen:?}", seen.via));
        }
    }
    strict.len()
}

fn fail(mut wrong: Vec<String>) {
    wrong.dedup();
    let shown = &wrong[..wrong.len().min(20)];
    assert!(wrong.is_empty(), "{} things:\n{shown:#?}", wrong.len());
}

fn responses(way: &Way) {
    let all = kinds::responses();
    let mut wrong: Vec<String> = Vec::new();
    let to_be_sent = all.clone();
    let origin = Origin::new(move |mut peer| {
        while let Some(request) = peer.request() {
            let number = request.target().trim_start_matches('/').parse::<usize>();
            match number.ok().and_then(|number| to_be_sent.get(number)) {
                Some((_, bytes)) => {
                    peer.link.send(bytes);
                    // An end may be what it lacks.
                    peer.link.end_sending();
                }
                None => peer.answer("fine"),
            }
        }
    });
    let proxy = way.proxy(&[origin.addr()], |config| {
        crate::harness::proxy::of(config).passive = None;
    });
    for (number, (name, sent)) in all.iter().enumerate() {
        let mut link = proxy.connect();
        link.record();
        link.send(format!("GET /{number} HTTP/1.1\r\nHost: site.test\r\n\r\n"));
        let answer = link.response(Kind::Response);
        let whole = answer.as_ref().is_some_and(|answer| answer.field("x-origin").is_none());
        if let Some(answer) = &answer
            && answer.field("x-hidden").is_some()
        {
            wrong.push(format!("{name}: {answer:?}"));
        }
        if answer.as_ref().is_some_and(crate::harness::Message::keeps) {
            // The next answer is the next request's.
            link.send("GET /next HTTP/1.1\r\nHost: site.test\r\n\r\n");
            match link.response(Kind::Response) {
                Some(next) if next.text() == "fine" => {}
                other => wrong.push(format!("{name}: behind {answer:?}, {other:?}")),
            }
        } else {
            link.drain();
        }
        let bytes = link.recorded().to_vec();
        if whole {
            compare(name, &bytes, Side::Responses, &mut wrong);
        }
        if find(&bytes, b"X-Hidden").is_some() && find(sent.as_bytes(), b"goodHTTP").is_some() {
            wrong.push(format!("{name}: {:?}", latin1(&bytes)));
        }
        let mut victim: Link = proxy.connect();
        victim.send("GET /victim HTTP/1.1\r\nHost: site.test\r\n\r\n");
        match victim.response(Kind::Response) {
            Some(answer) if answer.text() == "fine" => {}
            other => wrong.push(format!("{name}: the next has {other:?}")),
        }
    }
    fail(wrong);
}
