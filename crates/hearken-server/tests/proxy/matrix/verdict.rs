//! Checks of the results: a client receives exactly what the origin sent, or an error that it can detect.

use std::collections::HashMap;

use crate::common::{End, Framing, Message};

use super::behaviour::{ClientRecord, OriginRecord, end_to_end_fields};
use super::case::{Case, ClientBehaviour, Fault, IDS, Phase, ServerBehaviour, ShortTimeouts};
use super::request::{Request, RequestKind};
use super::response::{Response, ResponseKind};

/// The outcome of a request for its client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    /// The complete message of the origin.
    Complete,
    /// Detectably truncated.
    Truncated,
    /// An error response of the proxy.
    Error(u16),
    /// The connection ended without a response.
    Nothing,
}

/// The outcomes that are correct.
#[derive(Default, Debug)]
struct Allowed(Vec<Outcome>);

/// Checks the responses of a client.
pub(crate) fn check_client(case: &Case, base: u64, observed: &ClientRecord) -> Result<(), String> {
    if observed.disconnected {
        return Ok(());
    }
    if let Some(behind) = &observed.behind {
        return Err(format!("after the response: {behind}"));
    }
    let request = case.request(base);
    if request.http10 && !observed.interim.is_empty() {
        return Err("an interim response to HTTP/1.0".to_owned());
    }
    let asked = if case.request_kind == RequestKind::Pipelined { 3 } else { 1 };
    for index in 0..asked {
        let id = base + index as u64;
        let (mut response, got) = (case.response(id), observed.response_kind.get(index));
        let part = observed.part.as_ref().filter(|_| index == observed.response_kind.len());
        let ends_early = matches!(
            case.server(id),
            ServerBehaviour::Fails(Phase::InBody | Phase::AfterHead, Fault::Closes)
        );
        if response.until_close && ends_early {
            // The truncation is not detectable.
            let end = match case.server {
                ServerBehaviour::Fails(Phase::AfterHead, _) => 0,
                _ => (response.bytes.len() - response.head) / 2,
            };
            response.body = &response.body[..end];
        }
        let outcome = outcome(id, &case.request(id), &response, got, part, observed.end.as_ref())?;
        let allowed = allowed(case, index, &response);
        if !allowed.0.contains(&outcome) {
            let text = got.map(Message::text).filter(|_| matches!(outcome, Outcome::Error(_)));
            return Err(format!(
                "request {index}: {outcome:?}, not one of {:?}: {}",
                allowed.0,
                text.unwrap_or_default()
            ));
        }
        let closed = got.is_none_or(|got| !got.keeps());
        if closed {
            // Later requests get no response.
            break;
        }
    }
    Ok(())
}

/// Checks that a response is the complete message of the origin.
pub(crate) fn check_response(
    id: u64,
    request: &Request,
    response: &Response,
    got: Option<&Message>,
    end: Option<&End>,
) -> Result<(), String> {
    match outcome(id, request, response, got, None, end)? {
        Outcome::Complete => Ok(()),
        outcome => Err(format!("{outcome:?}: {got:?}, {end:?}")),
    }
}

fn outcome(
    id: u64,
    request: &Request,
    response: &Response,
    got: Option<&Message>,
    part: Option<&Message>,
    end: Option<&End>,
) -> Result<Outcome, String> {
    if let Some(End::Malformed(what)) = end {
        return Err(format!("malformed: {what}"));
    }
    if end == Some(&End::Hangs) {
        return Err("no response".to_owned());
    }
    let Some(message) = got.or(part) else { return Ok(Outcome::Nothing) };
    let Some(origin) = message.field("x-origin") else {
        return match got {
            Some(_) if message.status() >= 400 => Ok(Outcome::Error(message.status())),
            _ => Err(format!(
                "neither a response of the origin nor a complete error: {message:?}, {end:?}"
            )),
        };
    };
    if origin != id.to_string() {
        return Err(format!("the response to {origin}"));
    }
    if message.status() != response.status || end_to_end_fields(&message.fields) != response.fields
    {
        return Err(format!("a different head: {message:?}"));
    }
    if request.http10 && message.field("transfer-encoding").is_some() {
        return Err("Transfer-Encoding to HTTP/1.0".to_owned());
    }
    let framed = match message.framing {
        Framing::Length(length) => response.length == Some(length),
        Framing::None => {
            response.length.is_none_or(|length| length == 0)
                && !response.chunked
                && !response.until_close
        }
        Framing::Chunked => response.chunked || response.until_close,
        Framing::UntilClose => response.until_close || response.chunked && request.http10,
    };
    if !framed {
        return Err(format!("a different framing: {message:?}"));
    }
    if !response.body.starts_with(&message.body) {
        return Err(format!("a different body: {message:?}"));
    }
    let all = message.body == response.body;
    if got.is_none() {
        return Ok(Outcome::Truncated);
    }
    if !all {
        // The truncation is not detectable.
        return Err(format!(
            "{} of {} bytes without an error",
            message.body.len(),
            response.body.len()
        ));
    }
    if message.framing == Framing::Chunked && message.trailers != response.trailers {
        return Err(format!("different trailers: {message:?}"));
    }
    Ok(Outcome::Complete)
}

/// Returns the correct outcomes of the request with this index in a case.
fn allowed(case: &Case, index: usize, response: &Response) -> Allowed {
    use Outcome::{Complete, Error, Nothing, Truncated};
    let behind = case.request_kind == RequestKind::Pipelined && index > 0;
    let server = if behind { ServerBehaviour::Normal } else { case.server };
    let unrequested = !behind
        && case.response_kind == ResponseKind::Switching
        && case.request_kind != RequestKind::Upgrade;
    let cut = [Truncated, Error(502)];
    let mut outcomes = match server {
        ServerBehaviour::EarlyCloses => vec![Complete, Truncated, Error(502)],
        ServerBehaviour::Fails(
            Phase::InBody | Phase::BetweenChunks | Phase::AfterHead,
            Fault::Stalls,
        ) => {
            vec![Truncated, Error(504)]
        }
        ServerBehaviour::Fails(Phase::InBody | Phase::AfterHead, Fault::Closes)
            if response.until_close =>
        {
            vec![Complete]
        }
        ServerBehaviour::Fails(Phase::InBody | Phase::BetweenChunks | Phase::AfterHead, _) => {
            cut.to_vec()
        }
        ServerBehaviour::Fails(_, Fault::Stalls) => vec![Error(504)],
        ServerBehaviour::Fails(..)
        | ServerBehaviour::EndlessInterim
        | ServerBehaviour::EndlessHead => vec![Error(502)],
        ServerBehaviour::EndlessExtension | ServerBehaviour::EndlessTrailers => cut.to_vec(),
        _ => vec![Complete],
    };
    if unrequested {
        outcomes.retain(|&outcome| outcome != Complete);
    }
    if unrequested || response.interim == 100 {
        outcomes.push(Error(502));
    }
    let hurried = matches!(case.short_timeouts(), ShortTimeouts::Server | ShortTimeouts::Both);
    if hurried && (behind || case.request_kind == RequestKind::Expecting) {
        // On a busy machine, other parts of the exchange may exceed the short timeout.
        outcomes.push(Error(504));
    }
    let faulty = case.request_kind != RequestKind::Pipelined || index == 1;
    let ClientBehaviour::Fails(phase, fault) = case.client else { return Allowed(outcomes) };
    if !faulty {
        return Allowed(outcomes);
    }
    let errors: &[Outcome] = match fault {
        Fault::Stalls => &[Error(408)],
        Fault::Garbage => &[Error(400)],
        _ => &[Error(400), Error(408), Nothing],
    };
    let reached = !matches!(phase, Phase::Before | Phase::InHead);
    // These origins may respond before the end of the request.
    let at_once = matches!(
        server,
        ServerBehaviour::Early
            | ServerBehaviour::EarlyEnds
            | ServerBehaviour::EarlyCloses
            | ServerBehaviour::Fails(Phase::AtHead, _)
    );
    if !(reached && at_once) {
        outcomes.retain(|&outcome| {
            outcome == Error(504) && hurried && case.request_kind == RequestKind::Expecting
        });
    }
    if reached && at_once {
        outcomes.push(Truncated);
    }
    outcomes.extend(errors);
    Allowed(outcomes)
}

/// Checks the requests that the origin received in all cases.
pub(crate) fn check_origin(cases: &[Case], seen: &[OriginRecord]) -> Vec<String> {
    let mut errors = Vec::new();
    let mut times: HashMap<u64, usize> = HashMap::new();
    for seen in seen {
        let case = usize::try_from(seen.id / IDS).ok().and_then(|index| cases.get(index));
        if let Some(what) = &seen.errors {
            errors.push(format!("{case:?}, id {}: the origin received {what}", seen.id));
        }
        let Some(case) = case else { continue };
        *times.entry(seen.id).or_default() += 1;
        let second = case.request_kind == RequestKind::Pipelined && seen.id % IDS == 1;
        let first = case.request_kind != RequestKind::Pipelined && seen.id % IDS == 0;
        if let ClientBehaviour::Fails(phase, _) = case.client
            && !matches!(phase, Phase::After | Phase::InAnswer)
            && (first || second)
            && (seen.complete || phase == Phase::InHead || phase == Phase::Before)
        {
            errors.push(format!("{case:?}: the origin received more than the client sent"));
        }
    }
    for (id, times) in times {
        let case = cases[usize::try_from(id / IDS).unwrap_or(0)];
        let max = if case.request(id).is_safe() { 2 } else { 1 };
        if times > max {
            errors.push(format!("{case:?}, id {id}: sent to the origin {times} times"));
        }
    }
    errors
}
