//! Every kind of request and response with every behaviour of clients and origins.
//!
//! Requests and responses carry the id of their case. Each client checks that it received the response
//! to its request, and the origin checks each request against the one that was sent. Cases run
//! concurrently through one proxy to one origin.

mod behaviour;
mod case;
pub(crate) mod conversation;
mod request;
mod response;
mod verdict;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::admin::wait_idle;
use crate::common::server::{enable_admin, proxy_config, upstreams_config};
use crate::common::{Origin, Recorder, Setup, ms};
use case::{Case, IDS, SHORT_TIMEOUTS, ShortTimeouts};

pub(crate) use case::Selection;

/// Number of cases that run concurrently: far more than processors, because some wait for a timeout.
const THREADS: usize = 64;
/// Timeout of the proxy for a stalled peer.
const STALL: Duration = ms(300);

pub(crate) fn run(setup: &Setup, selection: Selection) {
    let all = case::cases(selection);
    let mut errors = Vec::new();
    for &short in SHORT_TIMEOUTS {
        let cases = all.iter().copied().filter(|case| case.short_timeouts() == short);
        errors.extend(run_cases(setup, &cases.filter(is_requested).collect(), short));
    }
    let shown = &errors[..errors.len().min(number("HEARKEN_TEST_SHOWN", 20))];
    assert!(errors.is_empty(), "{} of {} cases:\n{shown:#?}", errors.len(), all.len());
}

/// Returns whether the description of a case contains all words in `HEARKEN_TEST_CASES`.
fn is_requested(case: &Case) -> bool {
    let Ok(words) = std::env::var("HEARKEN_TEST_CASES") else { return true };
    let text = format!("{case:?}");
    words.split_whitespace().all(|word| text.contains(word))
}

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn run_cases(setup: &Setup, cases: &Arc<[Case]>, short: ShortTimeouts) -> Vec<String> {
    let (origin_records, client_errors) = (Recorder::new(), Recorder::new());
    let (origin_cases, records) = (cases.clone(), origin_records.clone());
    let origin = Origin::new(move |peer| behaviour::serve(peer, &origin_cases, &records));
    let proxy = setup.proxy(&[origin.addr()], |config| {
        enable_admin(config);
        // An origin that fails on purpose must not be paused.
        upstreams_config(config).passive = None;
        upstreams_config(config).max_attempts = NonZeroU32::MIN;
        proxy_config(config).max_body_bytes = Some(16 << 20);
        let timeouts = &mut config.timeouts;
        // After everything was sent, only this timeout detects a client that has disconnected.
        timeouts.send = ms(5000);
        if matches!(short, ShortTimeouts::Client | ShortTimeouts::Both) {
            (timeouts.header, timeouts.body) = (STALL, STALL);
        }
        if matches!(short, ShortTimeouts::Server | ShortTimeouts::Both) {
            let timeouts = &mut proxy_config(config).timeouts;
            (timeouts.response_header, timeouts.response_body) = (STALL, STALL);
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
                    let observed = behaviour::run_client(case, base, proxy.connect());
                    if let Err(error) = verdict::check_client(case, base, &observed) {
                        client_errors.add(format!("{case:?}: {error}"));
                    }
                }
            });
        }
    });
    let idle = wait_idle(&proxy);
    // The records are complete once all connections have ended.
    proxy.end();
    origin.end();
    let mut errors = client_errors.take();
    errors.extend(idle.err());
    errors.extend(verdict::check_origin(cases, &origin_records.take()));
    errors
}
