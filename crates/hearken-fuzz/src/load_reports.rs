//! Results of loads, read from files.

use hearken_load::{Histogram, Report, SCHEMA, export, merge};
use serde_json::{Map, Value};

/// Reads a report that consists of defaults and the fields of the input.
fn read(bytes: &[u8]) -> Option<Report> {
    let fields: Map<String, Value> = serde_json::from_slice(bytes).ok()?;
    let defaults = Report { schema: SCHEMA.to_owned(), ..Report::default() };
    let mut report = serde_json::to_value(defaults).ok()?;
    report.as_object_mut()?.extend(fields);
    serde_json::from_value(report).ok()
}

// Any valid report can be shown, exported and merged, and JSON preserves it.
#[test]
fn report() {
    bolero::check!().for_each(|bytes: &[u8]| {
        let Some(mut report) = read(bytes) else { return };
        report.sanitise();
        if report.validate().is_err() {
            return;
        }
        let json = serde_json::to_string(&report).expect("a valid report is printed");
        let again: Report = serde_json::from_str(&json).expect("a printed report is read");
        assert_eq!(serde_json::to_string(&again).ok(), Some(json));
        let _ = (report.to_string(), export::csv(&report), export::hlog(&report));
        let _ = merge(&[report.clone(), report]);
    });
}

// A decoded histogram contains the same times after another encoding.
#[test]
fn histogram() {
    bolero::check!().for_each(|bytes: &[u8]| {
        let Ok(text) = str::from_utf8(bytes) else { return };
        let Ok(histogram) = Histogram::decode(text) else { return };
        let again =
            Histogram::decode(&histogram.encode()).expect("an encoded histogram is decoded");
        assert_eq!(again.as_hdr(), histogram.as_hdr());
        assert_eq!(again.len(), histogram.len());
    });
}
