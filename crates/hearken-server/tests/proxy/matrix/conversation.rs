//! Many requests of every framing on one connection, with responses of every framing, drawn at random:
//! nothing of one is left in another.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::answer::{ANSWERS, Answers};
use super::ask::{ASKS, Asks};
use super::behave;
use super::case::{Case, Client, IDS, Server};
use super::verdict;
use crate::harness::proxy::of;
use crate::harness::{End, Link, Notes, Origin, Way};

/// How many run at a time.
const THREADS: usize = 16;

/// Numbers that repeat (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % most
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// A request that another may follow, or that is the last, and its response.
fn drawn(random: &mut Random, last: bool) -> Case {
    loop {
        let (asks, answers) = (random.of(ASKS), random.of(ANSWERS));
        let waits = matches!(asks, Asks::Pipelined | Asks::Expecting | Asks::Upgrade);
        let large = asks.is_large() || answers.is_large();
        if waits
            || answers == Answers::Switching
            || asks == Asks::Old && !last
            || large && random.below(4) > 0
        {
            continue;
        }
        let server = if random.below(4) == 0 { Server::Trickles } else { Server::Normal };
        return Case { asks, answers, client: Client::Normal, server };
    }
}

pub(crate) fn run(way: &Way, count: usize) {
    let seed = super::number("HEARKEN_TEST_SEED", 20_261_121);
    let mut random = Random(seed as u64 * 2 + 1);
    let (mut cases, mut all) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let from = cases.len();
        let length = 1 + random.below(12);
        (0..length).for_each(|index| cases.push(drawn(&mut random, index + 1 == length)));
        all.push((from..cases.len(), random.below(5000) + 1));
    }
    let cases: Arc<[Case]> = cases.into();
    let (notes, wrong) = (Notes::new(), Notes::new());
    let (of_origin, seen) = (cases.clone(), notes.clone());
    let origin = Origin::new(move |peer| behave::serve(peer, &of_origin, &seen));
    let proxy = way.proxy(&[origin.addr()], |config| of(config).passive = None);
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some((range, piece)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(what) = talk(&cases, range.clone(), *piece, proxy.connect()) {
                        let asked: Vec<_> = cases[range.clone()]
                            .iter()
                            .map(|case| (case.asks, case.answers, case.server))
                            .collect();
                        wrong.add(format!("{asked:?} in pieces of {piece}: {what}"));
                    }
                }
            });
        }
    });
    proxy.end();
    origin.end();
    let mut wrong = wrong.take();
    wrong.extend(verdict::of_origin(&cases, &notes.take()));
    let shown = &wrong[..wrong.len().min(10)];
    assert!(wrong.is_empty(), "seed {seed}, {} of {count}:\n{shown:#?}", wrong.len());
}

/// Asks all of it at once, and takes the answers.
fn talk(cases: &[Case], range: Range<usize>, piece: usize, mut link: Link) -> Result<(), String> {
    let id = |index: usize| index as u64 * IDS;
    let bytes: Vec<u8> =
        range.clone().flat_map(|index| cases[index].ask(id(index)).bytes).collect();
    link.send_in(&bytes, piece);
    if piece.is_multiple_of(3) {
        link.end_sending();
    }
    for index in range.clone() {
        let (case, id) = (&cases[index], id(index));
        let ask = case.ask(id);
        let got = link.response(ask.kind());
        verdict::is_whole(id, &ask, &case.answer(id), got.as_ref(), link.end.as_ref())
            .map_err(|what| format!("request {}: {what}", index - range.start))?;
        if got.is_none_or(|got| !got.keeps()) {
            let ended = link.ending()?;
            let may = ask.old && ended != End::Hangs;
            return if may { Ok(()) } else { Err(format!("closed behind {case:?}: {ended:?}")) };
        }
    }
    link.end_sending();
    match link.ending()? {
        End::Closed => Ok(()),
        end => Err(format!("it ends with {end:?}")),
    }
}
