//! The cases: kinds of requests and responses, and the behaviour of each side.

use std::sync::OnceLock;

use crate::common::Random;
use crate::common::pairwise::pairwise;

use super::request::{REQUEST_KINDS, Request, RequestKind, build_request};
use super::response::{RESPONSE_KINDS, Response, ResponseKind, build_response};

/// The place in a message where a fault occurs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// The head of the request has been read. Origins only.
    AtHead,
    /// No byte has been sent.
    Before,
    InHead,
    AfterHead,
    InBody,
    BetweenChunks,
    /// The whole message has been sent. Clients only.
    After,
    /// The head of the response has been read. Clients only.
    InAnswer,
}

/// A fault in a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    Closes,
    Resets,
    Stalls,
    /// Shuts down its side and keeps reading. Clients only.
    Ends,
    /// Sends bytes that are not HTTP.
    Garbage,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ClientBehaviour {
    Normal,
    Trickles,
    ReadsSlowly,
    HalfCloses,
    Fails(Phase, Fault),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ServerBehaviour {
    Normal,
    Trickles,
    Fails(Phase, Fault),
    /// Responds before it reads the body, then reads it.
    Early,
    /// Responds before it reads the body, shuts down its side, and reads the body.
    EarlyEnds,
    /// Responds before it reads the body, and closes the connection.
    EarlyCloses,
    /// Sends a second response with the first.
    Doubles,
    /// Sends other bytes with the response.
    Exceeds,
    EndlessInterim,
    EndlessHead,
    EndlessExtension,
    EndlessTrailers,
}

pub(crate) const CLIENT_BEHAVIOURS: &[ClientBehaviour] = &[
    ClientBehaviour::Normal,
    ClientBehaviour::Trickles,
    ClientBehaviour::ReadsSlowly,
    ClientBehaviour::HalfCloses,
    ClientBehaviour::Fails(Phase::InHead, Fault::Closes),
    ClientBehaviour::Fails(Phase::AfterHead, Fault::Closes),
    ClientBehaviour::Fails(Phase::InBody, Fault::Closes),
    ClientBehaviour::Fails(Phase::BetweenChunks, Fault::Closes),
    ClientBehaviour::Fails(Phase::After, Fault::Closes),
    ClientBehaviour::Fails(Phase::InAnswer, Fault::Closes),
    ClientBehaviour::Fails(Phase::InHead, Fault::Resets),
    ClientBehaviour::Fails(Phase::AfterHead, Fault::Resets),
    ClientBehaviour::Fails(Phase::InBody, Fault::Resets),
    ClientBehaviour::Fails(Phase::After, Fault::Resets),
    ClientBehaviour::Fails(Phase::InAnswer, Fault::Resets),
    ClientBehaviour::Fails(Phase::InHead, Fault::Ends),
    ClientBehaviour::Fails(Phase::InBody, Fault::Ends),
    ClientBehaviour::Fails(Phase::BetweenChunks, Fault::Ends),
    ClientBehaviour::Fails(Phase::InHead, Fault::Stalls),
    ClientBehaviour::Fails(Phase::AfterHead, Fault::Stalls),
    ClientBehaviour::Fails(Phase::InBody, Fault::Stalls),
    ClientBehaviour::Fails(Phase::Before, Fault::Garbage),
    ClientBehaviour::Fails(Phase::InHead, Fault::Garbage),
    ClientBehaviour::Fails(Phase::BetweenChunks, Fault::Garbage),
];

pub(crate) const SERVER_BEHAVIOURS: &[ServerBehaviour] = &[
    ServerBehaviour::Normal,
    ServerBehaviour::Trickles,
    ServerBehaviour::Fails(Phase::AtHead, Fault::Closes),
    ServerBehaviour::Fails(Phase::Before, Fault::Closes),
    ServerBehaviour::Fails(Phase::InHead, Fault::Closes),
    ServerBehaviour::Fails(Phase::AfterHead, Fault::Closes),
    ServerBehaviour::Fails(Phase::InBody, Fault::Closes),
    ServerBehaviour::Fails(Phase::BetweenChunks, Fault::Closes),
    ServerBehaviour::Fails(Phase::AtHead, Fault::Resets),
    ServerBehaviour::Fails(Phase::Before, Fault::Resets),
    ServerBehaviour::Fails(Phase::InHead, Fault::Resets),
    ServerBehaviour::Fails(Phase::InBody, Fault::Resets),
    ServerBehaviour::Fails(Phase::BetweenChunks, Fault::Resets),
    ServerBehaviour::Fails(Phase::AtHead, Fault::Stalls),
    ServerBehaviour::Fails(Phase::Before, Fault::Stalls),
    ServerBehaviour::Fails(Phase::InHead, Fault::Stalls),
    ServerBehaviour::Fails(Phase::AfterHead, Fault::Stalls),
    ServerBehaviour::Fails(Phase::InBody, Fault::Stalls),
    ServerBehaviour::Fails(Phase::BetweenChunks, Fault::Stalls),
    ServerBehaviour::Fails(Phase::Before, Fault::Garbage),
    ServerBehaviour::Fails(Phase::InHead, Fault::Garbage),
    ServerBehaviour::Fails(Phase::BetweenChunks, Fault::Garbage),
    ServerBehaviour::Early,
    ServerBehaviour::EarlyEnds,
    ServerBehaviour::EarlyCloses,
    ServerBehaviour::Doubles,
    ServerBehaviour::Exceeds,
    ServerBehaviour::EndlessInterim,
    ServerBehaviour::EndlessHead,
    ServerBehaviour::EndlessExtension,
    ServerBehaviour::EndlessTrailers,
];

/// A request, its response, and the behaviour of both sides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Case {
    pub(crate) request_kind: RequestKind,
    pub(crate) response_kind: ResponseKind,
    pub(crate) client: ClientBehaviour,
    pub(crate) server: ServerBehaviour,
}

/// The timeouts of the proxy that are short, so that cases with a stalled peer end soon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ShortTimeouts {
    Neither,
    Client,
    Server,
    Both,
}

pub(crate) const SHORT_TIMEOUTS: &[ShortTimeouts] =
    &[ShortTimeouts::Neither, ShortTimeouts::Client, ShortTimeouts::Server, ShortTimeouts::Both];

/// Number of request ids per case: the first is the request of the case, others come before or after.
pub(crate) const IDS: u64 = 10;
/// Offset of the id of the request that is sent on the connection after the case.
pub(crate) const PROBE: u64 = 9;

impl Case {
    pub(crate) fn request(&self, id: u64) -> Request {
        let is_first = id.is_multiple_of(IDS);
        build_request(if is_first { self.request_kind } else { RequestKind::Get }, id)
    }

    pub(crate) fn response(&self, id: u64) -> Response {
        match id % IDS {
            0 => build_response(self.response_kind, id, self.is_head(), self.server_closes()),
            1 => build_response(ResponseKind::Chunked, id, false, false),
            _ => build_response(ResponseKind::Small, id, false, false),
        }
    }

    pub(crate) fn server(&self, id: u64) -> ServerBehaviour {
        if id.is_multiple_of(IDS) { self.server } else { ServerBehaviour::Normal }
    }

    /// Returns whether the behaviours apply to these messages.
    fn is_possible(&self) -> bool {
        let request = RequestTraits::of(self.request_kind);
        let closes = self.server_closes();
        let response = ResponseTraits::of(self.response_kind, self.is_head(), closes);
        let client = match self.client {
            ClientBehaviour::Fails(Phase::AfterHead | Phase::InBody, _) => request.has_body,
            ClientBehaviour::Fails(Phase::BetweenChunks, _) => request.is_chunked,
            _ => true,
        };
        let server = match self.server {
            ServerBehaviour::Fails(Phase::AfterHead | Phase::InBody, _) => response.has_body,
            ServerBehaviour::Fails(Phase::BetweenChunks, _)
            | ServerBehaviour::EndlessExtension
            | ServerBehaviour::EndlessTrailers => response.chunked,
            ServerBehaviour::Early => request.has_body && !response.until_close,
            ServerBehaviour::EarlyEnds | ServerBehaviour::EarlyCloses => request.has_body,
            // Only bytes that arrive together are certainly seen before the connection is reused.
            ServerBehaviour::Doubles | ServerBehaviour::Exceeds => {
                !response.closes && response.status != 101 && response.length < 16 << 10
            }
            _ => true,
        };
        // After 101 the connection carries another protocol. Tunnels have their own tests.
        let plain =
            self.client == ClientBehaviour::Normal && self.server == ServerBehaviour::Normal;
        let switches = self.response_kind == ResponseKind::Switching
            && self.request_kind == RequestKind::Upgrade;
        client && server && (!switches || plain)
    }

    fn is_head(&self) -> bool {
        self.request_kind == RequestKind::Head
    }

    /// Returns whether the response announces that the server closes the connection. A connection that
    /// is closed without an announcement may be closed while it is reused.
    fn server_closes(&self) -> bool {
        matches!(self.server, ServerBehaviour::EarlyEnds | ServerBehaviour::EarlyCloses)
    }

    pub(crate) fn short_timeouts(&self) -> ShortTimeouts {
        let client = matches!(self.client, ClientBehaviour::Fails(_, Fault::Stalls));
        match (client, matches!(self.server, ServerBehaviour::Fails(_, Fault::Stalls))) {
            (false, false) => ShortTimeouts::Neither,
            (true, false) => ShortTimeouts::Client,
            (false, true) => ShortTimeouts::Server,
            (true, true) => ShortTimeouts::Both,
        }
    }
}

/// The properties of a kind of request that limit the behaviours.
#[derive(Clone, Copy)]
struct RequestTraits {
    has_body: bool,
    is_chunked: bool,
}

impl RequestTraits {
    /// Returns the traits of a kind, which are computed once.
    fn of(kind: RequestKind) -> RequestTraits {
        static ALL: OnceLock<Vec<RequestTraits>> = OnceLock::new();
        let all = ALL.get_or_init(|| {
            let traits = |&kind: &RequestKind| {
                let request = build_request(kind, 0);
                RequestTraits {
                    has_body: request.has_body(),
                    is_chunked: !request.chunks.is_empty(),
                }
            };
            REQUEST_KINDS.iter().map(traits).collect()
        });
        all[kind as usize]
    }
}

/// The properties of a kind of response that limit the behaviours.
#[derive(Clone, Copy)]
struct ResponseTraits {
    status: u16,
    /// Length of the whole message in bytes.
    length: usize,
    has_body: bool,
    chunked: bool,
    until_close: bool,
    closes: bool,
}

impl ResponseTraits {
    /// Returns the traits of a kind, which are computed once.
    fn of(kind: ResponseKind, bodiless: bool, closes: bool) -> ResponseTraits {
        static ALL: OnceLock<Vec<[ResponseTraits; 4]>> = OnceLock::new();
        let all = ALL.get_or_init(|| {
            let traits = |kind: ResponseKind, bodiless, closes| {
                let response = build_response(kind, 0, bodiless, closes);
                ResponseTraits {
                    status: response.status,
                    length: response.bytes.len(),
                    has_body: !response.body.is_empty(),
                    chunked: response.chunked,
                    until_close: response.until_close,
                    closes: response.closes,
                }
            };
            let four = |&kind: &ResponseKind| {
                [(false, false), (false, true), (true, false), (true, true)]
                    .map(|(bodiless, closes)| traits(kind, bodiless, closes))
            };
            RESPONSE_KINDS.iter().map(four).collect()
        });
        all[kind as usize][usize::from(bodiless) * 2 + usize::from(closes)]
    }
}

/// A selection of cases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Selection {
    /// Every pair of client, server, request and response.
    Pairwise,
    /// A share of `Pairwise`. The indices 0 to [`SHARES`] - 1 select disjoint shares, each with every
    /// behaviour and every kind of message.
    Share(usize),
    /// Every behaviour of one side with a normal other side, for every request and response.
    OneSided,
    All,
}

/// Number of shares of the pairwise cases. Successive mechanisms run successive shares.
const SHARES: usize = 4;

fn pairwise_cases() -> &'static [Case] {
    static CASES: OnceLock<Vec<Case>> = OnceLock::new();
    CASES.get_or_init(|| {
        let levels = [
            SERVER_BEHAVIOURS.len(),
            CLIENT_BEHAVIOURS.len(),
            RESPONSE_KINDS.len(),
            REQUEST_KINDS.len(),
        ];
        let rows = pairwise(levels, |row| case_of(row).is_possible());
        rows.into_iter().map(case_of).collect()
    })
}

fn case_of([server, client, response_kind, request_kind]: [usize; 4]) -> Case {
    Case {
        request_kind: REQUEST_KINDS[request_kind],
        response_kind: RESPONSE_KINDS[response_kind],
        client: CLIENT_BEHAVIOURS[client],
        server: SERVER_BEHAVIOURS[server],
    }
}

pub(crate) fn cases(selection: Selection) -> Vec<Case> {
    match selection {
        Selection::Pairwise => pairwise_cases().to_vec(),
        Selection::Share(index) => {
            let mut cases = pairwise_cases().to_vec();
            let mut random = Random::new(1);
            for last in (1..cases.len()).rev() {
                cases.swap(last, random.below(last + 1));
            }
            let cases: Vec<Case> = cases.into_iter().skip(index % SHARES).step_by(SHARES).collect();
            let has_client = |client| cases.iter().any(|case| case.client == client);
            let has_server = |server| cases.iter().any(|case| case.server == server);
            assert!(CLIENT_BEHAVIOURS.iter().all(|&client| has_client(client)));
            assert!(SERVER_BEHAVIOURS.iter().all(|&server| has_server(server)));
            cases
        }
        Selection::OneSided => all_cases()
            .filter(|case| {
                case.client == ClientBehaviour::Normal || case.server == ServerBehaviour::Normal
            })
            .collect(),
        Selection::All => all_cases().collect(),
    }
}

fn all_cases() -> impl Iterator<Item = Case> {
    let rows = (0..SERVER_BEHAVIOURS.len()).flat_map(|server| {
        (0..CLIENT_BEHAVIOURS.len()).flat_map(move |client| {
            (0..RESPONSE_KINDS.len()).flat_map(move |response| {
                (0..REQUEST_KINDS.len()).map(move |request| [server, client, response, request])
            })
        })
    });
    rows.map(case_of).filter(Case::is_possible)
}
