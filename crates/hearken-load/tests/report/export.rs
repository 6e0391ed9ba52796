//! CSV and HdrHistogram log exports.

use std::time::Duration;

use crate::fixtures::{Piece, report};
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use hearken_load::{Histogram, Report, export};
use proptest::prelude::*;

fn example() -> Report {
    let piece = |latencies: &[u64], failed, draining| Piece {
        latencies: latencies.to_vec(),
        failed,
        draining,
    };
    report(&[
        piece(&[1_000_000, 2_000_000, 9_000_000], 1, false),
        piece(&[], 2, false),
        piece(&[4_000_000_000], 0, true),
    ])
}

#[test]
fn csv_has_one_line_per_interval() {
    let text = export::csv(&example());
    let lines: Vec<_> = text.split_terminator("\r\n").collect();
    assert_eq!(lines.len(), 4);
    assert!(lines[0].starts_with("offset_s,duration_s,draining,scheduled,"), "{}", lines[0]);
    let columns = lines[0].split(',').count();
    assert!(lines.iter().all(|line| line.split(',').count() == columns), "{text}");
    assert!(lines[1].starts_with("0,1,false,4,4,3,1,0,0,10,3.000,3,"), "{}", lines[1]);
    assert!(lines[2].starts_with("1,1,false,2,2,0,2,0,0,10,0.000,0,,"), "{}", lines[2]);
    assert!(lines[3].starts_with("2,1,true,0,0,1,0,0,0,10,1.000,1,"), "{}", lines[3]);
}

#[test]
fn the_interval_log_has_the_standard_header() {
    let text = String::from_utf8(export::hlog(&example()).unwrap()).unwrap();
    assert!(text.starts_with("#[Histogram log format version 1.3]\n"), "{text}");
    assert!(text.contains("#[StartTime: 1700000000.000 (seconds since epoch)]\n"), "{text}");
    assert!(text.contains("#[BaseTime: 1700000000.000 (seconds since epoch)]\n"), "{text}");
    let line = text.lines().last().unwrap();
    // The maximum in milliseconds. HISTFAAA is the prefix of a compressed V2 histogram in base64.
    assert!(line.starts_with("2.000,1.000,4001.366,HISTFAAA"), "{line}");
}

#[test]
fn reports_the_interval_with_invalid_latencies() {
    let mut report = example();
    report.intervals[1].latency = "?".to_owned();
    assert!(export::hlog(&report).unwrap_err().contains("interval 1"));
}

proptest! {
    #![proptest_config(crate::cases(8))]

    #[test]
    fn the_interval_log_round_trips(
        pieces in prop::collection::vec(prop::collection::vec(1..3_600_000_000_000u64, 0..40), 0..6),
    ) {
        let piece = |latencies| Piece { latencies, ..Piece::default() };
        let report = report(&pieces.into_iter().map(piece).collect::<Vec<_>>());
        let log = export::hlog(&report).unwrap();
        let mut times = Vec::new();
        let mut sum = Histogram::new();
        for entry in IntervalLogIterator::new(&log) {
            match entry.unwrap() {
                LogEntry::StartTime(at) | LogEntry::BaseTime(at) => {
                    prop_assert_eq!(at, Duration::from_nanos(crate::fixtures::STARTED));
                }
                LogEntry::Interval(interval) => {
                    prop_assert!(interval.tag().is_none());
                    prop_assert_eq!(interval.duration(), Duration::from_secs(1));
                    times.push(interval.start_timestamp().as_secs());
                    let of = Histogram::decode(interval.encoded_histogram()).unwrap();
                    prop_assert!((interval.max() - of.quantiles().max as f64 / 1e6).abs() < 0.001);
                    sum.add(&of);
                }
            }
        }
        prop_assert_eq!(times, (0..report.intervals.len() as u64).collect::<Vec<_>>());
        prop_assert_eq!(sum, report.histograms.latency);
    }
}
