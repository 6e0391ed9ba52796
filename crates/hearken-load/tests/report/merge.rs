//! Merged parts equal the result of a single generator. Results of different loads are rejected.

use crate::fixtures::{Piece, part, report};
use hearken_load::merge::merge_within;
use hearken_load::{Arrivals, MergeError, Model, Objectives, Report, merge};
use proptest::prelude::*;
use std::time::Duration;

/// Creates the result of all requests, and the results of `size` parts with the requests of their ranks.
fn split(pieces: &[Vec<(u32, u64, bool)>], size: u32) -> (Report, Vec<Report>) {
    let of = |wanted: &dyn Fn(u32) -> bool| {
        let piece = |all: &Vec<(u32, u64, bool)>| {
            let own = || all.iter().filter(|(rank, ..)| wanted(rank % size));
            Piece {
                latencies: own().filter(|(_, _, failed)| !failed).map(|&(_, at, _)| at).collect(),
                failed: own().filter(|(_, _, failed)| *failed).count() as u64,
                draining: false,
            }
        };
        let mut pieces: Vec<Piece> = pieces.iter().map(piece).collect();
        if let Some(last) = pieces.last_mut() {
            last.draining = true;
        }
        report(&pieces)
    };
    let parts = (0..size).map(|own| part(own, size, of(&|rank| rank == own))).collect();
    (of(&|_| true), parts)
}

fn pieces() -> impl Strategy<Value = Vec<Vec<(u32, u64, bool)>>> {
    let one = (0..8u32, 1..10_000_000_000u64, prop::bool::weighted(0.1));
    prop::collection::vec(prop::collection::vec(one, 0..30), 2..8)
}

/// Compares floats that were added in different orders.
fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
}

fn sorted(mut report: Report) -> Report {
    report.warnings.sort();
    report.reply_rate = (report.reply_rate * 1e6).round();
    report
}

proptest! {
    #![proptest_config(crate::cases(5))]

    #[test]
    fn merged_parts_equal_the_undivided_result(pieces in pieces(), size in 1..6u32) {
        let (whole, parts) = split(&pieces, size);
        let merged = merge(&parts).unwrap();
        prop_assert_eq!(merged.requests, whole.requests);
        prop_assert_eq!(merged.status, whole.status);
        prop_assert_eq!(merged.errors, whole.errors);
        prop_assert_eq!(merged.timeouts, whole.timeouts);
        prop_assert_eq!(merged.bytes, whole.bytes);
        // Histograms are added bucket by bucket.
        prop_assert_eq!(&merged.histograms, &whole.histograms);
        prop_assert_eq!(merged.latency_ns, whole.latency_ns);
        prop_assert!(close(merged.reply_rate, whole.reply_rate));
        prop_assert_eq!(merged.offered_rate, 100.0 * f64::from(size));
        // The rate is the rate of the full load.
        prop_assert_eq!(&merged.rate, "100");
        prop_assert_eq!(merged.intervals.len(), whole.intervals.len());
        for (merged, whole) in merged.intervals.iter().zip(&whole.intervals) {
            prop_assert_eq!(merged.histogram().unwrap(), whole.histogram().unwrap());
            let mut expected = whole.clone();
            expected.idle_open *= u64::from(size);
            expected.latency.clone_from(&merged.latency);
            prop_assert_eq!(merged, &expected);
        }
        prop_assert_eq!(merged.reply_rate_samples, whole.reply_rate_samples);
        prop_assert!(merged.warnings.is_empty(), "{:?}", merged.warnings);
        prop_assert_eq!(merged.parts.len(), size as usize);
        prop_assert_eq!(merged.validate(), Ok(()));
    }

    #[test]
    fn merging_is_associative_and_commutative(
        pieces in pieces(),
        first in 1..4usize,
        late in prop::collection::vec(0..100_000_000u64, 5),
        says in prop::collection::vec(any::<bool>(), 5),
    ) {
        let (_, mut parts) = split(&pieces, 5);
        for ((part, late), says) in parts.iter_mut().zip(late).zip(says) {
            part.started_unix_ns += late;
            let own = part.part.as_mut().unwrap();
            own.scheduled_start_unix_ns = Some(crate::fixtures::STARTED);
            own.start_delay_ns = late;
            if says {
                part.warnings.push("it was late".to_owned());
            }
        }
        let flat = merge(&parts).unwrap();
        let (some, rest) = parts.split_at(first);
        let nested = merge(&[merge(some).unwrap(), merge(rest).unwrap()]).unwrap();
        prop_assert_eq!(sorted(nested), sorted(flat.clone()));
        parts.reverse();
        prop_assert_eq!(sorted(merge(&parts).unwrap()), sorted(flat));
    }
}

fn parts(size: u32) -> Vec<Report> {
    split(&[vec![(0, 1, false), (1, 2, false)], vec![(2, 3, true)], vec![]], size).1
}

#[test]
fn rejects_results_of_different_loads() {
    assert_eq!(merge(&[]), Err(MergeError::Empty));
    type Change = fn(&mut Report);
    let changes: [(&str, Change); 6] = [
        ("url", |report| report.url.push('x')),
        ("workload", |report| report.workload.push('x')),
        ("model", |report| report.model = Model::Sessions),
        ("arrivals", |report| report.arrivals = Arrivals::Uniform),
        ("requests_per_connection", |report| report.requests_per_connection = Some("1".to_owned())),
        ("rate", |report| report.rate.clear()),
    ];
    for (name, change) in changes {
        let mut parts = parts(3);
        change(&mut parts[1]);
        let error = merge(&parts).unwrap_err();
        assert_eq!(error.index(), Some(1), "{error}");
        assert!(error.to_string().contains(name), "{error}");
    }
    let mut other = parts(2);
    other[1].schema = "hearken-load/1".to_owned();
    assert!(merge(&other).unwrap_err().to_string().contains("hearken-load/1"));
    let mut other = parts(2);
    other[0].histograms.latency = hearken_load::Histogram::new();
    assert!(matches!(merge(&other), Err(MergeError::HistogramMismatch { index: 0, .. })));
    let mut other = parts(2);
    other[1].intervals.iter_mut().for_each(|interval| interval.duration_s = 0.7);
    assert!(matches!(merge(&other), Err(MergeError::IntervalMismatch { index: 1, .. })));
}

#[test]
fn rejects_duplicate_ranks() {
    let all = parts(8);
    let twice = [all[0].clone(), all[3].clone(), all[3].clone()];
    let error = merge(&twice).unwrap_err();
    assert_eq!((error.index(), error.to_string().contains("rank 3")), (Some(2), true), "{error}");
    let some = merge(&all[..4]).unwrap();
    let error = merge(&[some, merge(&all[2..]).unwrap()]).unwrap_err();
    assert!(error.to_string().contains("ranks 2-3"), "{error}");
    let mut sizes = parts(2);
    sizes[1].part.as_mut().unwrap().size = 3;
    assert!(matches!(
        merge(&sizes),
        Err(MergeError::SizeMismatch { index: 1, expected: 2, found: 3 })
    ));
    let mut none = parts(2);
    none[0].part = None;
    assert_eq!(merge(&none), Err(MergeError::MissingRank { index: 0 }));
    let mut beyond = parts(2);
    beyond[1].part.as_mut().unwrap().rank = 2;
    assert!(matches!(
        merge(&beyond),
        Err(MergeError::RankOutOfRange { index: 1, rank: 2, size: 2 })
    ));
    // Results without ranks are merged as they are.
    none.iter_mut().for_each(|report| report.part = None);
    assert_eq!(merge(&none).unwrap().parts, []);
}

#[test]
fn warns_about_missing_ranks() {
    let all = parts(8);
    let some = [all[0].clone(), all[2].clone(), all[6].clone(), all[7].clone()];
    let merged = merge(&some).unwrap();
    let warnings = "merge: of 8 parts, ranks 1, 3-5 are missing: all values cover only the other 4";
    assert_eq!(merged.warnings, [warnings]);
    let rest = [merged, all[1].clone(), all[3].clone(), all[4].clone(), all[5].clone()];
    assert!(merge(&rest).unwrap().warnings.is_empty());
    // A malicious file may claim any size.
    let mut huge = all[..1].to_vec();
    huge[0].part.as_mut().unwrap().size = u32::MAX;
    let warnings = &merge(&huge).unwrap().warnings[0];
    assert!(warnings.contains("ranks 1-4294967294 are missing"), "{warnings}");
}

#[test]
fn warns_about_start_times_and_clocks() {
    let mut all = parts(3);
    all[2].started_unix_ns += 80_000_000;
    let warnings = merge(&all).unwrap().warnings;
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].contains("80.0 ms apart, rank 0 first and rank 2 last"), "{warnings:?}");
    assert!(merge_within(&all, Duration::from_millis(80)).unwrap().warnings.is_empty());
    let mut all = parts(3);
    all[1].part.as_mut().unwrap().clock_synchronised = Some(false);
    all[2].part.as_mut().unwrap().clock_synchronised = Some(true);
    all[2].part.as_mut().unwrap().clock_max_error_us = Some(70_000);
    let warnings = merge(&all).unwrap().warnings;
    assert!(warnings[0].contains("rank 1 is not synchronised"), "{warnings:?}");
    assert!(
        warnings[1].contains("rank 2 may be wrong by more than 50.0 ms (up to 70.0 ms)"),
        "{warnings:?}"
    );
    assert_eq!(warnings.len(), 2);
}

#[test]
fn warnings_name_the_ranks_of_their_parts() {
    let mut all = parts(3);
    all.iter_mut().for_each(|part| part.warnings.push("no reply".to_owned()));
    all[1].warnings.push("late".to_owned());
    assert_eq!(merge(&all).unwrap().warnings, ["no reply", "rank 1: late"]);
}

#[test]
fn intervals_of_later_parts_are_shifted() {
    let two = |latencies: [Vec<u64>; 3]| {
        report(&latencies.map(|latencies| Piece { latencies, ..Piece::default() }))
    };
    let early = part(0, 2, two([vec![1; 1], vec![1; 10], vec![1; 100]]));
    let mut late = part(1, 2, two([vec![1; 1000], vec![1; 10_000], vec![]]));
    late.started_unix_ns += 1_020_000_000;
    let merged = merge(&[late, early]).unwrap();
    let actual: Vec<_> =
        merged.intervals.iter().map(|piece| (piece.offset_s, piece.replies)).collect();
    assert_eq!(actual, [(0.0, 1), (1.0, 1010), (2.0, 10_100), (3.0, 0)]);
    assert_eq!(merged.started_unix_ns, crate::fixtures::STARTED);
}

/// Checks that parts may miss an objective that the merged result meets, and vice versa.
#[test]
fn objectives_are_evaluated_on_the_merged_result() {
    let objectives: Objectives = "rate>=150/s,errors<1%".parse().unwrap();
    let mut all = [0, 1].map(|rank| {
        let piece = Piece { latencies: vec![5; 100], ..Piece::default() };
        part(rank, 2, report(&[piece.clone(), piece]))
    });
    all.iter_mut().for_each(|part| part.objectives = objectives.evaluate(part));
    assert_eq!(all[0].objectives.iter().map(|of| of.passed).collect::<Vec<_>>(), [false, true]);
    let merged = merge(&all).unwrap();
    assert_eq!(merged.objectives.iter().map(|of| of.passed).collect::<Vec<_>>(), [true, true]);
}

#[test]
fn aligns_intervals_of_different_lengths() {
    let piece = |count: usize| Piece { latencies: vec![5; count], ..Piece::default() };
    let fine = part(0, 2, report(&[1, 2, 3, 4].map(piece)));
    let mut coarse = part(1, 2, report(&[10, 20].map(piece)));
    for (at, interval) in [0.0, 2.0].into_iter().zip(&mut coarse.intervals) {
        (interval.offset_s, interval.duration_s) = (at, 2.0);
    }
    let merged = merge(&[fine, coarse]).unwrap();
    let actual: Vec<_> =
        merged.intervals.iter().map(|i| (i.offset_s, i.duration_s, i.replies)).collect();
    assert_eq!(actual, [(0.0, 2.0, 13), (2.0, 2.0, 27)]);
    assert!(merged.intervals.iter().all(|interval| interval.idle_open == 20));
}

#[test]
fn different_profiles_are_listed_with_counts() {
    let mut all = parts(4);
    for (part, rate) in all.iter_mut().zip(["1..5@60s", "1..5@60s", "7", "0.5"]) {
        part.rate = rate.to_owned();
    }
    let error = merge(&all).unwrap_err();
    assert!(error.to_string().contains("rate") && error.index() == Some(2), "{error}");
    // Results without ranks may have different profiles.
    all.iter_mut().for_each(|part| part.part = None);
    let merged = merge(&all[..2]).unwrap();
    assert_eq!(merged.rate, "2 x 1..5@60s");
    let rest = merge(&all[2..]).unwrap();
    assert_eq!(merge(&[merged, rest]).unwrap().rate, "7.5 + 2 x 1..5@60s");
}
