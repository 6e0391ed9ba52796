//! The cases: what is asked and answered, and how each side behaves.

use super::answer::{ANSWERS, Answer, Answers, answer};
use super::ask::{ASKS, Ask, Asks, ask};

/// Where something happens to a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// An origin's only: as soon as the request's head is there.
    AtHead,
    /// Before its first byte.
    Before,
    InHead,
    AfterHead,
    InBody,
    BetweenChunks,
    /// A client's only: once all is sent.
    After,
    /// A client's only: once the response's head is there.
    InAnswer,
}

/// What happens there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    Closes,
    Resets,
    Stalls,
    /// A client's only: its side ends, and it reads.
    Ends,
    /// What follows is none of HTTP.
    Garbage,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Client {
    Normal,
    Trickles,
    ReadsSlowly,
    HalfCloses,
    Fails(Phase, Fault),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Server {
    Normal,
    Trickles,
    Fails(Phase, Fault),
    /// Answers before it reads the body, then reads it.
    Early,
    /// Answers before it reads the body, ends its side, and reads on.
    EarlyEnds,
    /// Answers before it reads the body, and closes.
    EarlyCloses,
    /// Sends a second response right behind the first.
    Doubles,
    /// Sends bytes right behind the response.
    Exceeds,
    EndlessInterim,
    EndlessHead,
    EndlessExtension,
    EndlessTrailers,
}

pub(crate) const CLIENTS: &[Client] = &[
    Client::Normal,
    Client::Trickles,
    Client::ReadsSlowly,
    Client::HalfCloses,
    Client::Fails(Phase::InHead, Fault::Closes),
    Client::Fails(Phase::AfterHead, Fault::Closes),
    Client::Fails(Phase::InBody, Fault::Closes),
    Client::Fails(Phase::BetweenChunks, Fault::Closes),
    Client::Fails(Phase::After, Fault::Closes),
    Client::Fails(Phase::InAnswer, Fault::Closes),
    Client::Fails(Phase::InHead, Fault::Resets),
    Client::Fails(Phase::AfterHead, Fault::Resets),
    Client::Fails(Phase::InBody, Fault::Resets),
    Client::Fails(Phase::After, Fault::Resets),
    Client::Fails(Phase::InAnswer, Fault::Resets),
    Client::Fails(Phase::InHead, Fault::Ends),
    Client::Fails(Phase::InBody, Fault::Ends),
    Client::Fails(Phase::BetweenChunks, Fault::Ends),
    Client::Fails(Phase::InHead, Fault::Stalls),
    Client::Fails(Phase::AfterHead, Fault::Stalls),
    Client::Fails(Phase::InBody, Fault::Stalls),
    Client::Fails(Phase::Before, Fault::Garbage),
    Client::Fails(Phase::InHead, Fault::Garbage),
    Client::Fails(Phase::BetweenChunks, Fault::Garbage),
];

pub(crate) const SERVERS: &[Server] = &[
    Server::Normal,
    Server::Trickles,
    Server::Fails(Phase::AtHead, Fault::Closes),
    Server::Fails(Phase::Before, Fault::Closes),
    Server::Fails(Phase::InHead, Fault::Closes),
    Server::Fails(Phase::AfterHead, Fault::Closes),
    Server::Fails(Phase::InBody, Fault::Closes),
    Server::Fails(Phase::BetweenChunks, Fault::Closes),
    Server::Fails(Phase::AtHead, Fault::Resets),
    Server::Fails(Phase::Before, Fault::Resets),
    Server::Fails(Phase::InHead, Fault::Resets),
    Server::Fails(Phase::InBody, Fault::Resets),
    Server::Fails(Phase::BetweenChunks, Fault::Resets),
    Server::Fails(Phase::AtHead, Fault::Stalls),
    Server::Fails(Phase::Before, Fault::Stalls),
    Server::Fails(Phase::InHead, Fault::Stalls),
    Server::Fails(Phase::AfterHead, Fault::Stalls),
    Server::Fails(Phase::InBody, Fault::Stalls),
    Server::Fails(Phase::BetweenChunks, Fault::Stalls),
    Server::Fails(Phase::Before, Fault::Garbage),
    Server::Fails(Phase::InHead, Fault::Garbage),
    Server::Fails(Phase::BetweenChunks, Fault::Garbage),
    Server::Early,
    Server::EarlyEnds,
    Server::EarlyCloses,
    Server::Doubles,
    Server::Exceeds,
    Server::EndlessInterim,
    Server::EndlessHead,
    Server::EndlessExtension,
    Server::EndlessTrailers,
];

/// One case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Case {
    pub(crate) asks: Asks,
    pub(crate) answers: Answers,
    pub(crate) client: Client,
    pub(crate) server: Server,
}

/// Which of a proxy's time-outs have to be short for a case to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Short {
    Nothing,
    Client,
    Server,
    Both,
}

pub(crate) const SHORTS: &[Short] = &[Short::Nothing, Short::Client, Short::Server, Short::Both];

/// Each case has ten ids: its own, and those of what is asked around it.
pub(crate) const IDS: u64 = 10;
/// What is asked on a connection after the case.
pub(crate) const PROBE: u64 = 9;

impl Case {
    pub(crate) fn ask(&self, id: u64) -> Ask {
        ask(if id.is_multiple_of(IDS) { self.asks } else { Asks::Get }, id)
    }

    pub(crate) fn answer(&self, id: u64) -> Answer {
        match id % IDS {
            0 => {
                // One that is closed without a word may be closed as it is used again.
                let closes = matches!(self.server, Server::EarlyEnds | Server::EarlyCloses);
                answer(self.answers, id, self.asks == Asks::Head, closes)
            }
            1 => answer(Answers::Chunked, id, false, false),
            _ => answer(Answers::Small, id, false, false),
        }
    }

    pub(crate) fn server(&self, id: u64) -> Server {
        if id.is_multiple_of(IDS) { self.server } else { Server::Normal }
    }

    /// Whether it can be: some things happen to some messages only.
    fn is_possible(&self) -> bool {
        let (ask, answer) = (self.ask(0), self.answer(0));
        let client = match self.client {
            Client::Fails(Phase::AfterHead | Phase::InBody, _) => ask.has_body(),
            Client::Fails(Phase::BetweenChunks, _) => !ask.chunks.is_empty(),
            _ => true,
        };
        let has_body = !answer.body.is_empty();
        let server = match self.server {
            Server::Fails(Phase::AfterHead | Phase::InBody, _) => has_body,
            Server::Fails(Phase::BetweenChunks, _) | Server::EndlessExtension => answer.chunked,
            Server::EndlessTrailers => answer.chunked,
            Server::Early => ask.has_body() && !answer.until_close,
            Server::EarlyEnds | Server::EarlyCloses => ask.has_body(),
            // Only what comes in one piece is sure to be seen before the connection is used again.
            Server::Doubles | Server::Exceeds => {
                !answer.closes && answer.status != 101 && answer.bytes.len() < 16 << 10
            }
            _ => true,
        };
        // What follows 101 is another protocol: tunnels have tests of their own.
        let plain = self.client == Client::Normal && self.server == Server::Normal;
        client
            && server
            && (self.answers != Answers::Switching || self.asks != Asks::Upgrade || plain)
    }

    pub(crate) fn short(&self) -> Short {
        let client = matches!(self.client, Client::Fails(_, Fault::Stalls));
        match (client, matches!(self.server, Server::Fails(_, Fault::Stalls))) {
            (false, false) => Short::Nothing,
            (true, false) => Short::Client,
            (false, true) => Short::Server,
            (true, true) => Short::Both,
        }
    }
}

/// Which cases there are to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Extent {
    /// Any request with any response, for each behaviour of one side; and each behaviour of one with
    /// each of the other.
    Covering,
    /// Each behaviour of one side with some of everything else.
    Some,
    /// All with all.
    Whole,
}

pub(crate) fn cases(extent: Extent) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut turn = 0;
    for (c, &client) in CLIENTS.iter().enumerate() {
        for (s, &server) in SERVERS.iter().enumerate() {
            for (q, &asks) in ASKS.iter().enumerate() {
                for (r, &answers) in ANSWERS.iter().enumerate() {
                    let case = Case { asks, answers, client, server };
                    if !case.is_possible() {
                        continue;
                    }
                    let single = c == 0 || s == 0;
                    turn += 1;
                    let taken = match extent {
                        Extent::Whole => true,
                        Extent::Covering => single || turn % 41 == 0,
                        Extent::Some => single && (q * 5 + r * 3 + c + s) % 17 == 0,
                    };
                    if taken {
                        cases.push(case);
                    }
                }
            }
        }
    }
    cases
}
