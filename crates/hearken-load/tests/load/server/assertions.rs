//! Assertions that hold for all reports.

use hearken_load::Report;

/// Asserts that totals, intervals and histograms account for each request once.
#[track_caller]
pub fn assert_sums(report: &Report) {
    let checked = report.check_accounts();
    assert_eq!(checked, Ok(()), "{report}\n{:?} {:?}", report.requests, report.intervals);
}

/// Asserts like [`assert_sums`], and that the run ended by itself.
#[track_caller]
pub fn assert_conserved(report: &Report) {
    assert_sums(report);
    assert!(report.complete, "{report}");
    assert_eq!(report.requests.unfinished, 0, "{report}");
}
