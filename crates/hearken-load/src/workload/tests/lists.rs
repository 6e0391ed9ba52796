//! Weighted URLs, lists, traces and logs.

use std::time::Duration;

use super::{Settings, Source, file, format_bursts, load, load_with, requests, session, sources};

#[test]
fn urls_are_selected_by_weight() {
    let file = file("3 /a\n# no\n/b POST status=201 length=5\n\t 1 http://h:80/a\n");
    let workload = load(&Source::Urls(file.path().into())).unwrap();
    assert!(workload.timestamps().is_none());
    let drawn = requests(&workload, &mut workload.cursor(0, 1, 9), 10_000);
    let count = drawn.iter().filter(|text| *text == "POST /b").count() as f64;
    // Six standard deviations around one fifth.
    assert!((count - 2000.0).abs() < 6.0 * 40.0, "{count}");
    assert!(drawn.iter().all(|text| text == "POST /b" || text == "GET /a"));
    assert_eq!(workload.messages.len(), 2);
    let expect = workload.message(1).expect.as_deref().unwrap();
    assert_eq!(expect.to_string(), "status=201,length=5");
}

#[test]
fn a_connection_has_bursts_and_think_times() {
    let think = Some(Duration::from_secs(2));
    let settings = Settings { per_connection: Some(5), think, pipeline: 2 };
    let workload = load_with(&Source::Url, settings).unwrap();
    let mut cursor = workload.cursor(0, 1, 1);
    let shape = |bursts: &[(Duration, Vec<u32>)]| -> Vec<(u64, usize)> {
        bursts.iter().map(|(think, messages)| (think.as_secs(), messages.len())).collect()
    };
    for _ in 0..3 {
        let bursts = session(&workload, &mut cursor).unwrap();
        assert_eq!(shape(&bursts), [(0, 2), (2, 2), (2, 1)]);
    }
    let one = load(&Source::Url).unwrap();
    assert_eq!(shape(&session(&one, &mut one.cursor(0, 1, 1)).unwrap()), [(0, 1)]);
    // The end of a list ends the connection.
    let file = file("/1\0/2\0/3\0/4\0/5\0/6\0/7\0/8");
    let source = Source::Wlog { path: file.path().into(), repeat: false };
    let list = load_with(&source, settings).unwrap();
    let mut cursor = list.cursor(0, 1, 1);
    let bursts = session(&list, &mut cursor).unwrap();
    assert_eq!(
        format_bursts(&list, &bursts),
        "0: GET /1 GET /2; 2000: GET /3 GET /4; 2000: GET /5; "
    );
    let bursts = session(&list, &mut cursor).unwrap();
    assert_eq!(format_bursts(&list, &bursts), "0: GET /6 GET /7; 2000: GET /8; ");
    assert_eq!(session(&list, &mut cursor), None);
}

#[test]
fn access_logs_are_replayed_with_their_times() {
    let combined = "\
        h - a b [10/Oct/2000:13:55:38 -0700] \"GET /c HTTP/1.1\" 200 5 \"-\" \"x [y] \\\"z\\\"\"\n\
        h - - [10/Oct/2000:13:55:36 -0700] \"GET /a\\x22 HTTP/1.0\" 200 5\n\
        h - - [10/Oct/2000:20:55:36 +0000] \"POST /b HTTP/1.1\" 200 -\n\
        \n";
    let json = r#"
        {"time":"2000-10-10T20:55:36.5Z","method":"GET","uri":"/a\""}
        {"ts":971211337.0,"request":{"method":"POST","uri":"/b","host":"h"}}
        {"@timestamp":"2000-10-10T13:55:38.5-07:00","request":"GET /c HTTP/1.1"}
    "#;
    let spread = [0, 500, 2000];
    for (text, at) in [(combined, spread), (json, spread)] {
        let file = file(text);
        for (speed, factor) in [(1.0, 1), (0.5, 2)] {
            let path = file.path().to_owned();
            let workload = load(&Source::AccessLog { path, speed, skip_invalid: false }).unwrap();
            let found = requests(&workload, &mut workload.cursor(0, 1, 1), 10);
            assert_eq!(found, ["GET /a\"", "POST /b", "GET /c"]);
            let expected = at.map(|at| Duration::from_millis(at * factor));
            assert_eq!(workload.timestamps().map(|at| &at[..]), Some(&expected[..]), "{text}");
        }
    }
    for (one, other) in [
        ("\"2000-10-10 20:55:36\"", "\"10/Oct/2000:20:55:36 +0000\""),
        ("971211336", "971211336000"),
        ("\"971211336.000\"", "971211336000000"),
        ("971211336000000000", "\"2000-10-10T20:55:36+00:00\""),
    ] {
        let line = |time| format!("{{\"time\": {time}, \"path\": \"/\"}}\n");
        let file = file(line(one) + &line(other) + "nonsense\n");
        let [.., skipping, _] = sources(&file);
        let workload = load(&skipping).unwrap();
        let half = [Duration::ZERO, Duration::from_millis(500)];
        assert_eq!(workload.timestamps().map(|at| &at[..]), Some(&half[..]), "{one} {other}");
        assert!(workload.describe().contains("1 invalid line skipped"));
    }
    let file = file(combined);
    for speed in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let path = file.path().to_owned();
        assert!(load(&Source::AccessLog { path, speed, skip_invalid: true }).is_err());
    }
}

#[test]
fn traces_are_replayed_with_their_times() {
    let file =
        file("# t\n1700000000.25 /a\n1700000000.25 /b PUT\n\n1700000001.5 /a GET status=2xx\n");
    let workload = load(&Source::Trace(file.path().into())).unwrap();
    assert_eq!(
        requests(&workload, &mut workload.cursor(0, 1, 1), 10),
        ["GET /a", "PUT /b", "GET /a"]
    );
    let at = [0, 0, 1250].map(Duration::from_millis);
    assert_eq!(workload.timestamps().map(|at| &at[..]), Some(&at[..]));
    assert_eq!(workload.messages.len(), 3);
}
