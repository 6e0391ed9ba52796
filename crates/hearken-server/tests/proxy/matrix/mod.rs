//! Every framing of requests and responses against every behaviour of clients and origins.
//!
//! Each case has numbers of its own, which its requests name and its responses repeat, so that what a
//! client got is compared with exactly what its origin sent, and what the origin saw with exactly what
//! that client sent. Cases run beside each other through one proxy, to one origin.

mod answer;
mod ask;
mod behave;
mod case;
pub(crate) mod conversation;
mod verdict;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::harness::admin::is_at_rest;
use crate::harness::proxy::of;
use crate::harness::proxy::proxy_of;
use crate::harness::{Notes, Origin, Way, ms};
use case::{Case, IDS, SHORTS, Short};

pub(crate) use case::Extent;

/// How many cases run at a time; those that wait for a time-out are many more than processors.
const THREADS: usize = 64;
/// How long the proxy is to wait for who stalls.
const STALL: Duration = ms(300);

pub(crate) fn run(way: &Way, extent: Extent) {
    let all = case::cases(extent);
    let mut wrong = Vec::new();
    for &short in SHORTS {
        let cases = all.iter().copied().filter(|case| case.short() == short).filter(is_asked_for);
        wrong.extend(run_some(way, &cases.collect(), short));
    }
    let shown = &wrong[..wrong.len().min(number("HEARKEN_TEST_SHOWN", 20))];
    assert!(wrong.is_empty(), "{} of {} cases:\n{shown:#?}", wrong.len(), all.len());
}

/// To look into some: `HEARKEN_TEST_CASES` has words that all have to be in a case's description.
fn is_asked_for(case: &Case) -> bool {
    let Ok(words) = std::env::var("HEARKEN_TEST_CASES") else { return true };
    let text = format!("{case:?}");
    words.split_whitespace().all(|word| text.contains(word))
}

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn run_some(way: &Way, cases: &Arc<[Case]>, short: Short) -> Vec<String> {
    let (notes, of_origin, of_clients) = (Notes::new(), cases.clone(), Notes::new());
    let seen = notes.clone();
    let origin = Origin::new(move |peer| behave::serve(peer, &of_origin, &seen));
    let proxy = way.proxy(&[origin.addr()], |config| {
        // One that fails on purpose is to be asked on.
        of(config).passive = None;
        of(config).tries = NonZeroU32::MIN;
        proxy_of(config).body_limit = Some(16 << 20);
        config.admin = Some(([127, 0, 0, 1], 0).into());
        let timeouts = &mut config.timeouts;
        // Where all that there is was sent, it is by this that a client is missed which has gone.
        timeouts.send = ms(5000);
        if matches!(short, Short::Client | Short::Both) {
            (timeouts.head, timeouts.body) = (STALL, STALL);
        }
        if matches!(short, Short::Server | Short::Both) {
            let timeouts = &mut proxy_of(config).timeouts;
            (timeouts.response, timeouts.response_body) = (STALL, STALL);
        }
    });
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = cases.get(index) else { return };
                    let base = index as u64 * IDS;
                    let heard = behave::ask_of(case, base, proxy.connect());
                    if let Err(what) = verdict::of_client(case, base, &heard) {
                        of_clients.add(format!("{case:?}: {what}"));
                    }
                }
            });
        }
    });
    let at_rest = is_at_rest(&proxy);
    // Only then is all seen that is to be.
    proxy.end();
    origin.end();
    let mut wrong = of_clients.take();
    wrong.extend(at_rest.err());
    wrong.extend(verdict::of_origin(cases, &notes.take()));
    wrong
}
