//! Request smuggling: the proxy forwards no message that parsers interpret differently.
//!
//! Each variant of each category is sent through the proxy to an origin that records the bytes. A strict
//! parser and many lenient ones must find the same messages in them, each with one Via line of the proxy.
//! Responses of an origin must reach the client as one complete response, or as an error.

mod corpus;
mod parsers;

use crate::Test;
use crate::common::wire::find;
use crate::common::{Connection, End, Kind, Origin, Recorder, Setup, latin1};
use parsers::{PARSERS, ParseError, Side};

pub(crate) const TESTS: &[(&str, Test)] = &[
    ("smuggling::forwarded_requests_are_unambiguous", forwarded_requests_are_unambiguous),
    ("smuggling::forwarded_responses_are_unambiguous", forwarded_responses_are_unambiguous),
    ("smuggling::parsers_disagree_without_a_proxy", parsers_disagree_without_a_proxy),
];

/// Checks the corpus: without a proxy, the parsers disagree on most variants.
fn parsers_disagree_without_a_proxy(_: &Setup) {
    let (mut categories, mut variants, mut found) = (0, 0, 0);
    for category in corpus::all() {
        let mut errors = Vec::new();
        for variant in &category.variants {
            let before = errors.len();
            compare(category.name, variant, Side::Requests, &mut errors);
            errors.retain(|what: &String| !what.contains("Via lines"));
            found += usize::from(errors.len() > before);
            variants += 1;
        }
        categories += usize::from(!errors.is_empty());
    }
    assert!(
        categories >= 20 && found * 10 >= variants * 6,
        "{categories} categories, {found} of {variants} variants"
    );
}

fn forwarded_requests_are_unambiguous(setup: &Setup) {
    let mut errors: Vec<String> = Vec::new();
    for category in corpus::all() {
        // One proxy per category, so that bytes left in a connection affect the next variant.
        let notes = Recorder::new();
        let bytes = notes.clone();
        let origin = Origin::new(move |mut peer| {
            peer.connection.record();
            while let Some(request) = peer.request() {
                let body = if request.method() == "HEAD" { "" } else { "fine" };
                peer.connection.send(format!(
                    "HTTP/1.1 200 OK\r\nX-Origin: 1\r\nContent-Length: 4\r\n\r\n{body}"
                ));
            }
            bytes.add(peer.connection.recorded().to_vec());
        });
        // One of the variants is the preface of HTTP/2.
        let proxy = setup.proxy(&[origin.addr()], |config| config.http2 = false);
        let mut response_count = 0;
        for (number, variant) in category.variants.iter().enumerate() {
            response_count += send(&mut proxy.connect(), variant).unwrap_or_else(|what| {
                errors.push(format!("{} {number}: {what}", category.name));
                0
            });
            // The next client gets its own response.
            let mut victim = proxy.connect();
            victim.send("GET /victim HTTP/1.1\r\nHost: site.test\r\n\r\n");
            match victim.final_response(Kind::Response) {
                Some(response) if response.text() == "fine" => response_count += 1,
                other => errors.push(format!(
                    "{} {number}: the next client received {other:?}",
                    category.name
                )),
            }
        }
        proxy.end();
        origin.end();
        let mut parsed = 0;
        for bytes in &notes.take() {
            parsed += compare(category.name, bytes, Side::Requests, &mut errors);
        }
        if parsed != response_count {
            errors.push(format!(
                "{}: {parsed} messages for {response_count} responses",
                category.name
            ));
        }
    }
    fail(errors);
}

/// Sends a variant. Returns the number of responses of the origin.
fn send(connection: &mut Connection, variant: &[u8]) -> Result<usize, String> {
    connection.send(variant);
    connection.shutdown_write();
    let mut response_count = 0;
    let head = variant.starts_with(b"HEAD ");
    let mut kind = if head { Kind::Bodiless } else { Kind::Response };
    while let Some(response) = connection.final_response(kind) {
        let origin = response.field("x-origin").is_some();
        response_count += usize::from(origin);
        if !origin && response.status() < 400 {
            return Err(format!("{response:?}"));
        }
        kind = Kind::Response;
    }
    match &connection.end {
        Some(End::Closed | End::Reset) if connection.reader.is_idle() => Ok(response_count),
        end => Err(format!("the connection ends with {end:?} in {:?}", connection.reader)),
    }
}

/// Compares the results of all parsers. Returns the number of messages.
fn compare(name: &str, bytes: &[u8], side: Side, errors: &mut Vec<String>) -> usize {
    let (strict, error) = PARSERS[0].read(bytes, side);
    let cut = error == Some(ParseError::Incomplete);
    for parser in PARSERS {
        let (seen, error) = parser.read(bytes, side);
        // An incomplete request is incomplete for all parsers.
        if seen != strict
            || (error == Some(ParseError::Incomplete)) != cut
            || matches!(error, Some(ParseError::Malformed(_)))
        {
            let (name_of, text) = (parser.name, latin1(bytes));
            errors.push(format!("{name}, read with {name_of}: {error:?} in {text:?}"));
            break;
        }
    }
    if side == Side::Requests {
        for seen in strict.iter().filter(|seen| seen.via != 1) {
            errors.push(format!("{name}: {} Via lines in {seen:?}", seen.via));
        }
    }
    strict.len()
}

fn fail(mut errors: Vec<String>) {
    errors.dedup();
    let shown = &errors[..errors.len().min(20)];
    assert!(errors.is_empty(), "{} things:\n{shown:#?}", errors.len());
}

fn forwarded_responses_are_unambiguous(setup: &Setup) {
    let all = corpus::responses();
    let mut errors: Vec<String> = Vec::new();
    let to_be_sent = all.clone();
    let origin = Origin::new(move |mut peer| {
        while let Some(request) = peer.request() {
            let number = request.target().trim_start_matches('/').parse::<usize>();
            match number.ok().and_then(|number| to_be_sent.get(number)) {
                Some((_, bytes)) => {
                    peer.connection.send(bytes);
                    // The end of the stream may complete the response.
                    peer.connection.shutdown_write();
                }
                None => peer.respond("fine"),
            }
        }
    });
    let proxy = setup.proxy(&[origin.addr()], |config| {
        crate::common::server::upstreams_config(config).passive = None;
    });
    for (number, (name, sent)) in all.iter().enumerate() {
        let mut connection = proxy.connect();
        connection.record();
        connection.send(format!("GET /{number} HTTP/1.1\r\nHost: site.test\r\n\r\n"));
        let response = connection.final_response(Kind::Response);
        let complete =
            response.as_ref().is_some_and(|response| response.field("x-origin").is_none());
        if let Some(response) = &response
            && response.field("x-hidden").is_some()
        {
            errors.push(format!("{name}: {response:?}"));
        }
        if response.as_ref().is_some_and(crate::common::Message::keeps) {
            // The next response belongs to the next request.
            connection.send("GET /next HTTP/1.1\r\nHost: site.test\r\n\r\n");
            match connection.final_response(Kind::Response) {
                Some(next) if next.text() == "fine" => {}
                other => errors.push(format!("{name}: after {response:?}, {other:?}")),
            }
        } else {
            connection.drain();
        }
        let bytes = connection.recorded().to_vec();
        if complete {
            compare(name, &bytes, Side::Responses, &mut errors);
        }
        if find(&bytes, b"X-Hidden").is_some() && find(sent.as_bytes(), b"goodHTTP").is_some() {
            errors.push(format!("{name}: {:?}", latin1(&bytes)));
        }
        let mut victim: Connection = proxy.connect();
        victim.send("GET /victim HTTP/1.1\r\nHost: site.test\r\n\r\n");
        match victim.final_response(Kind::Response) {
            Some(response) if response.text() == "fine" => {}
            other => errors.push(format!("{name}: the next client received {other:?}")),
        }
    }
    fail(errors);
}
