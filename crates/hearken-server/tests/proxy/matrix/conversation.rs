//! Random sequences of requests and responses of every framing on one connection.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::behaviour;
use super::case::{Case, ClientBehaviour, IDS, ServerBehaviour};
use super::request::{REQUEST_KINDS, RequestKind};
use super::response::{RESPONSE_KINDS, ResponseKind};
use super::verdict;
use crate::common::server::upstreams_config;
use crate::common::{Connection, End, Origin, Random, Recorder, RunningServer, Setup};

/// Number of bytes that the proxy discards after its last response on a connection.
const LINGER_BYTES: usize = 256 << 10;

/// Number of conversations that run concurrently.
const THREADS: usize = 16;

/// Returns a random case. Requests that close the connection are drawn only if it is the `last` one.
fn random_case(random: &mut Random, last: bool) -> Case {
    loop {
        let (request_kind, response_kind) =
            (random.choose(REQUEST_KINDS), random.choose(RESPONSE_KINDS));
        let waits = matches!(
            request_kind,
            RequestKind::Pipelined | RequestKind::Expecting | RequestKind::Upgrade
        );
        let large = request_kind.is_large() || response_kind.is_large();
        if waits
            || response_kind == ResponseKind::Switching
            || request_kind == RequestKind::Old && !last
            || large && random.below(4) > 0
        {
            continue;
        }
        let server =
            if random.below(4) == 0 { ServerBehaviour::Trickles } else { ServerBehaviour::Normal };
        return Case { request_kind, response_kind, client: ClientBehaviour::Normal, server };
    }
}

pub(crate) fn run(setup: &Setup, count: usize) {
    run_through(setup, count, |setup, origin| {
        vec![setup.proxy(&[origin], |config| upstreams_config(config).passive = None)]
    });
}

/// Runs conversations with an origin through a chain of proxies. The first one serves the clients.
pub(crate) fn run_through(
    setup: &Setup,
    count: usize,
    start: impl FnOnce(&Setup, SocketAddr) -> Vec<RunningServer>,
) {
    let seed = super::number("HEARKEN_TEST_SEED", 20_261_121);
    let mut random = Random::new(seed as u64);
    let (mut cases, mut all) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let from = cases.len();
        let length = 1 + random.below(12);
        (0..length).for_each(|index| cases.push(random_case(&mut random, index + 1 == length)));
        all.push((from..cases.len(), random.below(5000) + 1));
    }
    let cases: Arc<[Case]> = cases.into();
    let (notes, errors) = (Recorder::new(), Recorder::new());
    let (check_origin, seen) = (cases.clone(), notes.clone());
    let origin = Origin::new(move |peer| behaviour::serve(peer, &check_origin, &seen));
    let proxies = start(setup, origin.addr());
    let proxy = &proxies[0];
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some((range, piece)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(what) =
                        run_conversation(&cases, range.clone(), *piece, proxy.connect())
                    {
                        let asked: Vec<_> = cases[range.clone()]
                            .iter()
                            .map(|case| (case.request_kind, case.response_kind, case.server))
                            .collect();
                        errors.add(format!("{asked:?} in pieces of {piece}: {what}"));
                    }
                }
            });
        }
    });
    proxies.into_iter().for_each(RunningServer::end);
    origin.end();
    let mut errors = errors.take();
    errors.extend(verdict::check_origin(&cases, &notes.take()));
    let shown = &errors[..errors.len().min(10)];
    assert!(errors.is_empty(), "seed {seed}, {} of {count}:\n{shown:#?}", errors.len());
}

/// Sends all requests of a conversation, then reads the responses.
fn run_conversation(
    cases: &[Case],
    range: Range<usize>,
    piece: usize,
    mut connection: Connection,
) -> Result<(), String> {
    let id = |index: usize| index as u64 * IDS;
    let bytes: Vec<u8> =
        range.clone().flat_map(|index| cases[index].request(id(index)).bytes).collect();
    connection.send_in_pieces(&bytes, piece);
    if piece.is_multiple_of(3) {
        connection.shutdown_write();
    }
    for index in range.clone() {
        let (case, id) = (&cases[index], id(index));
        let request = case.request(id);
        let got = connection.final_response(request.kind());
        let response = case.response(id);
        // The proxy closes after this response, and discards a limited number of bytes before a reset.
        let is_last = request.http10 && (response.chunked || response.until_close);
        let size = |index: usize| cases[index].request(index as u64 * IDS).bytes.len();
        let unread = || (index + 1..range.end).map(size).sum::<usize>();
        if is_last && connection.end == Some(End::Reset) && unread() > LINGER_BYTES {
            return Ok(());
        }
        verdict::check_response(id, &request, &response, got.as_ref(), connection.end.as_ref())
            .map_err(|what| format!("request {}: {what}", index - range.start))?;
        if got.is_none_or(|got| !got.keeps()) {
            let ended = connection.read_end()?;
            let may = request.http10 && ended != End::Hangs;
            return if may { Ok(()) } else { Err(format!("closed after {case:?}: {ended:?}")) };
        }
    }
    connection.shutdown_write();
    match connection.read_end()? {
        End::Closed => Ok(()),
        end => Err(format!("the connection ends with {end:?}")),
    }
}
