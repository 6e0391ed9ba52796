//! Whether what a client heard is what it may hear: exactly what the origin sent, or a clean error.

use std::collections::HashMap;

use crate::harness::{End, Framing, Message};

use super::answer::{Answer, Answers};
use super::ask::{Ask, Asks};
use super::behave::{Heard, Seen, passed};
use super::case::{Case, Client, Fault, IDS, Phase, Server, Short};

/// What became of a request, as its client sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    /// The origin's message.
    Whole,
    /// Part of it, and that can be known.
    Cut,
    /// The proxy's own.
    Error(u16),
    /// The connection ended.
    Nothing,
}

/// What may become of it.
#[derive(Default, Debug)]
struct Allowed(Vec<Outcome>);

/// What is wrong with what a client heard.
pub(crate) fn of_client(case: &Case, base: u64, heard: &Heard) -> Result<(), String> {
    if heard.left {
        return Ok(());
    }
    if let Some(behind) = &heard.behind {
        return Err(format!("behind the response: {behind}"));
    }
    let ask = case.ask(base);
    if ask.old && !heard.interim.is_empty() {
        return Err("an interim response to HTTP/1.0".to_owned());
    }
    let asked = if case.asks == Asks::Pipelined { 3 } else { 1 };
    for index in 0..asked {
        let id = base + index as u64;
        let (mut answer, got) = (case.answer(id), heard.answers.get(index));
        let part = heard.part.as_ref().filter(|_| index == heard.answers.len());
        let ends_early = matches!(
            case.server(id),
            Server::Fails(Phase::InBody | Phase::AfterHead, Fault::Closes)
        );
        if answer.until_close && ends_early {
            // Nobody can tell that more was to come.
            let end = match case.server {
                Server::Fails(Phase::AfterHead, _) => 0,
                _ => (answer.bytes.len() - answer.head) / 2,
            };
            answer.body = &answer.body[..end];
        }
        let outcome = outcome(id, &case.ask(id), &answer, got, part, heard.end.as_ref())?;
        let allowed = allowed(case, index, &answer);
        if !allowed.0.contains(&outcome) {
            let said = got.map(Message::text).filter(|_| matches!(outcome, Outcome::Error(_)));
            return Err(format!(
                "request {index}: {outcome:?}, not one of {:?}: {}",
                allowed.0,
                said.unwrap_or_default()
            ));
        }
        let closed = got.is_none_or(|got| !got.keeps());
        if closed {
            // Those behind it are not answered.
            break;
        }
    }
    Ok(())
}

/// That it is the origin's message, all of it.
pub(crate) fn is_whole(
    id: u64,
    ask: &Ask,
    answer: &Answer,
    got: Option<&Message>,
    end: Option<&End>,
) -> Result<(), String> {
    match outcome(id, ask, answer, got, None, end)? {
        Outcome::Whole => Ok(()),
        outcome => Err(format!("{outcome:?}: {got:?}, {end:?}")),
    }
}

fn outcome(
    id: u64,
    ask: &Ask,
    answer: &Answer,
    got: Option<&Message>,
    part: Option<&Message>,
    end: Option<&End>,
) -> Result<Outcome, String> {
    if let Some(End::Malformed(what)) = end {
        return Err(format!("malformed: {what}"));
    }
    if end == Some(&End::Hangs) {
        return Err("nothing comes".to_owned());
    }
    let Some(message) = got.or(part) else { return Ok(Outcome::Nothing) };
    let Some(origin) = message.field("x-origin") else {
        return match got {
            Some(_) if message.status() >= 400 => Ok(Outcome::Error(message.status())),
            _ => Err(format!("neither the origin's nor a whole error: {message:?}, {end:?}")),
        };
    };
    if origin != id.to_string() {
        return Err(format!("the answer to {origin}"));
    }
    if message.status() != answer.status || passed(&message.fields) != answer.fields {
        return Err(format!("another head: {message:?}"));
    }
    if ask.old && message.field("transfer-encoding").is_some() {
        return Err("Transfer-Encoding to HTTP/1.0".to_owned());
    }
    let framed = match message.framing {
        Framing::Length(length) => answer.length == Some(length),
        Framing::None => {
            answer.length.is_none_or(|length| length == 0) && !answer.chunked && !answer.until_close
        }
        Framing::Chunked => answer.chunked || answer.until_close,
        Framing::UntilClose => answer.until_close || answer.chunked && ask.old,
    };
    if !framed {
        return Err(format!("another framing: {message:?}"));
    }
    if !answer.body.starts_with(&message.body) {
        return Err(format!("another body: {message:?}"));
    }
    let all = message.body == answer.body;
    if got.is_none() {
        return Ok(Outcome::Cut);
    }
    if !all {
        // Its end looks like the end of all.
        return Err(format!("{} of {} bytes, as if whole", message.body.len(), answer.body.len()));
    }
    if message.framing == Framing::Chunked && message.trailers != answer.trailers {
        return Err(format!("other trailers: {message:?}"));
    }
    Ok(Outcome::Whole)
}

/// What may become of the `index`th request of a case.
fn allowed(case: &Case, index: usize, answer: &Answer) -> Allowed {
    use Outcome::{Cut, Error, Nothing, Whole};
    let behind = case.asks == Asks::Pipelined && index > 0;
    let server = if behind { Server::Normal } else { case.server };
    let unasked = !behind && case.answers == Answers::Switching && case.asks != Asks::Upgrade;
    let cut = [Cut, Error(502)];
    let mut outcomes = match server {
        Server::EarlyCloses => vec![Whole, Cut, Error(502)],
        Server::Fails(Phase::InBody | Phase::BetweenChunks | Phase::AfterHead, Fault::Stalls) => {
            vec![Cut, Error(504)]
        }
        Server::Fails(Phase::InBody | Phase::AfterHead, Fault::Closes) if answer.until_close => {
            vec![Whole]
        }
        Server::Fails(Phase::InBody | Phase::BetweenChunks | Phase::AfterHead, _) => cut.to_vec(),
        Server::Fails(_, Fault::Stalls) => vec![Error(504)],
        Server::Fails(..) | Server::EndlessInterim | Server::EndlessHead => vec![Error(502)],
        Server::EndlessExtension | Server::EndlessTrailers => cut.to_vec(),
        _ => vec![Whole],
    };
    if unasked {
        outcomes.retain(|&outcome| outcome != Whole);
    }
    if unasked || answer.interim == 100 {
        outcomes.push(Error(502));
    }
    let hurried = matches!(case.short(), Short::Server | Short::Both);
    if hurried && (behind || case.asks == Asks::Expecting) {
        // What is waited for first, or after the stall, a busy machine may be late with.
        outcomes.push(Error(504));
    }
    let faulty = case.asks != Asks::Pipelined || index == 1;
    let Client::Fails(phase, fault) = case.client else { return Allowed(outcomes) };
    if !faulty {
        return Allowed(outcomes);
    }
    let errors: &[Outcome] = match fault {
        Fault::Stalls => &[Error(408)],
        Fault::Garbage => &[Error(400)],
        _ => &[Error(400), Error(408), Nothing],
    };
    let reached = !matches!(phase, Phase::Before | Phase::InHead);
    // What an origin may say that has not had all of the request.
    let at_once = matches!(
        server,
        Server::Early | Server::EarlyEnds | Server::EarlyCloses | Server::Fails(Phase::AtHead, _)
    );
    if !(reached && at_once) {
        outcomes
            .retain(|&outcome| outcome == Error(504) && hurried && case.asks == Asks::Expecting);
    }
    if reached && at_once {
        outcomes.push(Cut);
    }
    outcomes.extend(errors);
    Allowed(outcomes)
}

/// What is wrong with what the origin saw of all cases.
pub(crate) fn of_origin(cases: &[Case], seen: &[Seen]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut times: HashMap<u64, usize> = HashMap::new();
    for seen in seen {
        let case = usize::try_from(seen.id / IDS).ok().and_then(|index| cases.get(index));
        if let Some(what) = &seen.wrong {
            wrong.push(format!("{case:?}, id {}: the origin saw {what}", seen.id));
        }
        let Some(case) = case else { continue };
        *times.entry(seen.id).or_default() += 1;
        let second = case.asks == Asks::Pipelined && seen.id % IDS == 1;
        let first = case.asks != Asks::Pipelined && seen.id % IDS == 0;
        if let Client::Fails(phase, _) = case.client
            && !matches!(phase, Phase::After | Phase::InAnswer)
            && (first || second)
            && (seen.whole || phase == Phase::InHead || phase == Phase::Before)
        {
            wrong.push(format!("{case:?}: the origin had more than the client sent"));
        }
    }
    for (id, times) in times {
        let case = cases[usize::try_from(id / IDS).unwrap_or(0)];
        let most = if case.ask(id).is_safe() { 2 } else { 1 };
        if times > most {
            wrong.push(format!("{case:?}, id {id}: sent to the origin {times} times"));
        }
    }
    wrong
}
