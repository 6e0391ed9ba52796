//! A result as test cases in JUnit's XML format.

use std::fmt::Write;

use hearken_load::Report;
use jiff::Timestamp;

/// Returns a test suite with a test case for each objective, and one that fails if no request succeeded.
pub(super) fn junit(report: &Report) -> String {
    let mut cases = vec![("requests succeeded".to_owned(), report.total_failure())];
    cases.extend(report.objectives.iter().map(|result| {
        let failure = (!result.passed).then(|| result.to_string());
        (result.objective.to_string(), failure)
    }));
    let failures = cases.iter().filter(|(_, failure)| failure.is_some()).count();
    let (tests, time) = (cases.len(), report.duration_s);
    let counts =
        format!("tests=\"{tests}\" failures=\"{failures}\" errors=\"0\" time=\"{time:.3}\"");
    let name = escape(&format!("hearken load {}", report.url));
    let start = Timestamp::from_nanosecond(report.started_unix_ns.into());
    let start = start.map(|start| format!(" timestamp=\"{start:.0}\"")).unwrap_or_default();
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {counts}>\n  \
         <testsuite name=\"{name}\" {counts}{start}>\n"
    );
    if !report.labels.is_empty() {
        xml += "    <properties>\n";
        for (key, value) in &report.labels {
            let (key, value) = (escape(key), escape(value));
            // Writing to a String does not fail.
            let _ = writeln!(xml, "      <property name=\"{key}\" value=\"{value}\"/>");
        }
        xml += "    </properties>\n";
    }
    for (name, failure) in cases {
        let case = format!("    <testcase classname=\"hearken load\" name=\"{}\"", escape(&name));
        let _ = match failure {
            None => writeln!(xml, "{case}/>"),
            Some(reason) => {
                let reason = escape(&reason);
                writeln!(xml, "{case}>\n      <failure message=\"{reason}\"/>\n    </testcase>")
            }
        };
    }
    let summary = escape(&report.to_string()).replace("&#10;", "\n");
    let _ = writeln!(xml, "    <system-out>{summary}</system-out>\n  </testsuite>\n</testsuites>");
    xml
}

/// Escapes a text for an attribute. Characters that XML forbids become question marks.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&apos;",
            // A parser would replace these by spaces in an attribute.
            '\t' | '\n' | '\r' => escaped += &format!("&#{};", u32::from(character)),
            '\0'..' ' | '\u{fffe}' | '\u{ffff}' => escaped.push('?'),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use hearken_load::Objectives;

    use super::*;

    #[test]
    fn each_objective_is_a_test_case() {
        let mut report = Report {
            complete: true,
            url: "http://a/?x=1&y=\"<'".to_owned(),
            started_unix_ns: 1_700_000_000_000_000_000,
            duration_s: 2.5,
            ..Report::default()
        };
        (report.requests.scheduled, report.requests.replies) = (100, 90);
        report.requests.failed = 10;
        report.labels.insert("a&b".to_owned(), "\x1b<".to_owned());
        let objectives: Objectives = "errors<1%,errors<50%".parse().unwrap();
        report.objectives = objectives.evaluate(&report);
        let xml = junit(&report);
        for expected in [
            "<testsuites tests=\"3\" failures=\"1\" errors=\"0\" time=\"2.500\">\n",
            "  <testsuite name=\"hearken load http://a/?x=1&amp;y=&quot;&lt;&apos;\" tests=\"3\" ",
            " timestamp=\"2023-11-14T22:13:20Z\">\n",
            "      <property name=\"a&amp;b\" value=\"?&lt;\"/>\n",
            "    <testcase classname=\"hearken load\" name=\"requests succeeded\"/>\n",
            "name=\"errors&lt;1%\">\n      <failure message=\"errors &lt; 1 %: not met, 10 %\"/>\n",
            "    <testcase classname=\"hearken load\" name=\"errors&lt;50%\"/>\n",
            "<system-out>http://a/?x=1&amp;y=&quot;&lt;&apos;\n",
        ] {
            assert!(xml.contains(expected), "{expected}: {xml}");
        }
        report.requests.replies = 0;
        report.errors.conn_refused = 100;
        let xml = junit(&report);
        let expected =
            "<failure message=\"no request succeeded: 100 of 100 connections were refused";
        assert!(xml.contains(expected) && xml.contains("failures=\"2\""), "{xml}");
    }
}
