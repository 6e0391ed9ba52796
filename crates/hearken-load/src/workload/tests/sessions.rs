//! Sessions: httperf files and the SPECweb99-like mix.

use std::time::Duration;

use proptest::prelude::*;

use super::{
    Settings, Source, describe_message, file, format_bursts, load, load_with, requests, session,
};

/// Example from the httperf manual.
const EXAMPLE: &str = "\
# Comment lines start with a \"#\" as the first

# session 1 definition (this is a comment)
/foo.html think=2.0
     /pict1.gif
     /pict2.gif
/foo2.html method=POST contents='Post data'
     /pict3.gif
     /pict4.gif


# session 2 definition
/foo3.html method=POST contents=\"Multiline\\ndata\"
/foo4.html method=HEAD
";

#[test]
fn reads_the_example_of_the_httperf_manual() {
    let file = file(EXAMPLE);
    let think = Duration::from_secs(5);
    let source = Source::Wsesslog { sessions: Some(3), think, path: file.path().to_owned() };
    let workload = load(&source).unwrap();
    let mut cursor = workload.cursor(0, 1, 1);
    let first = "0: GET /foo.html; 0: GET /pict1.gif GET /pict2.gif; 2000: POST /foo2.html; \
                 0: GET /pict3.gif GET /pict4.gif; ";
    for expected in [first, "0: POST /foo3.html; 5000: HEAD /foo4.html; ", first] {
        let bursts = session(&workload, &mut cursor).unwrap();
        assert_eq!(format_bursts(&workload, &bursts), expected);
        if expected != first {
            let bytes = &workload.message(bursts[0].1[0]).bytes;
            assert!(bytes.ends_with(b"Content-Length: 14\r\n\r\nMultiline\ndata"));
        }
    }
    assert_eq!(session(&workload, &mut cursor), None);
    let flat = requests(&workload, &mut workload.cursor(0, 1, 1), 100);
    assert_eq!((flat.len(), &*flat[8], &*flat[13]), (14, "GET /foo.html", "GET /pict4.gif"));
    assert!(workload.describe().starts_with("3 sessions from the 2 sessions of"));
}

#[test]
fn contents_are_quoted_as_in_httperf() {
    for (text, expected) in [
        ("contents=plain", "plain"),
        ("contents=a' b'\"c \"d think=1", "a bc d"),
        (r#"contents='a"b' "#, r#"a"b"#),
        (r"contents=\'a\ \\b\q", r"'a \bq"),
        (r"contents='\n\r\t\''", "\n\r\t'"),
        ("contents='one\\\n two' method=POST", "one\n two"),
        ("contents='one\\\r\ntwo'\r", "one\ntwo"),
        ("method=PUT contents=\"x=1&y='2'\"", "x=1&y='2'"),
        ("contents=''", ""),
    ] {
        let file = file(format!("/ {text}\n"));
        let source =
            Source::Wsesslog { sessions: None, think: Duration::ZERO, path: file.path().into() };
        let workload = load(&source).unwrap();
        let message = workload.message(workload.cursor(0, 1, 1).next_request().unwrap());
        let sent = String::from_utf8_lossy(&message.bytes);
        assert_eq!(sent.split_once("\r\n\r\n").unwrap().1, expected, "{text}");
        assert_eq!(sent.contains("Content-Length"), !expected.is_empty(), "{text}");
    }
}

#[test]
fn session_files_reject_conflicting_settings() {
    let file = file("/a\n");
    let path = file.path().to_owned();
    let source = Source::Wsesslog { sessions: None, think: Duration::ZERO, path };
    for settings in [
        Settings { per_connection: Some(1), ..Settings::default() },
        Settings { pipeline: 2, ..Settings::default() },
        Settings { think: Some(Duration::ZERO), ..Settings::default() },
    ] {
        assert!(load_with(&source, settings).is_err());
    }
    assert!(load(&source).is_ok());
}

#[test]
fn the_manifest_describes_the_file_set() {
    let dir = tempfile::tempdir().unwrap();
    let source = Source::Specweb { dir: dir.path().into() };
    let error = load(&source).unwrap_err();
    assert!(error.contains("specweb.manifest") && error.contains("--make"), "{error}");
    crate::specweb::create(dir.path(), 2, &mut |_| ()).unwrap();
    let workload = load(&source).unwrap();
    assert_eq!(workload.messages.len(), 72);
    assert_eq!(describe_message(&workload, 36 + 22), "GET /base/dir00001/class2_4");
    let expect = workload.message(36 + 22).expect.as_deref().unwrap();
    assert_eq!(expect.to_string(), "status=200,length=51200");
    let mut cursor = workload.cursor(0, 2, 1);
    for _ in 0..100 {
        let bursts = session(&workload, &mut cursor).unwrap();
        assert!(bursts.len() == 1 || (5..=15).contains(&bursts.len()));
        assert!(bursts.iter().all(|(think, messages)| think.is_zero() && messages.len() == 1));
    }
    assert!(
        load_with(&source, Settings { per_connection: Some(1), ..Settings::default() }).is_err()
    );
    // Sizes and numbers come from the manifest, which must be complete.
    let path = dir.path().join("specweb.manifest");
    let text = std::fs::read_to_string(&path).unwrap();
    let change = |from: &str, to: &str| {
        std::fs::write(&path, text.replace(from, to)).unwrap();
        load(&source)
    };
    let expect = change("class0_0 102", "class0_0 7").unwrap().message(0).expect.clone().unwrap();
    assert_eq!(expect.to_string(), "status=200,length=7");
    for (from, to) in [
        ("directories 2", "directories 0"),
        ("directories 2", "directories 100001"),
        ("class3_8 921600\n", ""),
        ("class3_8 921600", "class3_7 5"),
        ("class3_8", "class4_0"),
        ("class3_8 ", "class3_8=\0"),
    ] {
        assert!(change(from, to).is_err(), "{to}");
    }
}

/// A request of a session: whether it continues a burst, method, think time, contents.
type Line = (bool, String, Option<u32>, Option<Vec<u8>>);

/// Method and target of a request, and its body.
type Sent = (String, Vec<u8>);

fn line() -> impl Strategy<Value = Line> {
    let contents = prop::collection::vec(prop_oneof![any::<u8>(), Just(b'\''), Just(b'\\')], 1..20);
    let method = prop_oneof!["GET", "POST", "PURGE"];
    (any::<bool>(), method, prop::option::of(0..5000u32), prop::option::of(contents))
}

fn quoted(contents: &[u8], quote: Option<u8>) -> Vec<u8> {
    let mut text = Vec::from_iter(quote);
    for &byte in contents {
        match byte {
            b'\n' => text.extend(b"\\n"),
            b'\r' => text.extend(b"\\r"),
            b'\t' => text.extend(b"\\t"),
            b'\\' | b'\'' | b'"' | b' ' => text.extend([b'\\', byte]),
            // Other control characters need no escape.
            other => text.push(other),
        }
    }
    text.extend(quote);
    text
}

proptest! {
    /// Sessions written in the format are read back unchanged.
    #[test]
    fn session_files_round_trip(
        sessions in prop::collection::vec(prop::collection::vec(line(), 1..6), 1..5),
        quote in prop_oneof![Just(None), Just(Some(b'\'')), Just(Some(b'"'))],
    ) {
        let mut text = Vec::new();
        let mut expected = Vec::new();
        for (number, session) in sessions.iter().enumerate() {
            // Bursts as in httperf: the think time after them, and the requests.
            let mut groups: Vec<(u32, Vec<Sent>)> = Vec::new();
            for (index, (continues_burst, method, think, contents)) in session.iter().enumerate() {
                let continues_burst = *continues_burst && index > 0;
                if !continues_burst {
                    groups.push((700, Vec::new()));
                }
                let group = groups.last_mut().unwrap();
                let target = format!("/{number}/{index}#x");
                let indent = if continues_burst { "\t" } else { "" };
                text.extend(format!("{indent}{target} method={method}").bytes());
                // Outside of quotes, only blanks end a word in contents.
                if let Some(contents) = contents {
                    let quote = quote.or(contents[0].is_ascii_whitespace().then_some(b'"'));
                    let quote = quote.or((contents[0] == b'\x0b').then_some(b'"'));
                    text.extend(b" contents=");
                    text.extend(quoted(contents, quote));
                }
                if let Some(think) = think {
                    group.0 = *think;
                    text.extend(format!(" think={}.{:03}", think / 1000, think % 1000).bytes());
                }
                text.push(b'\n');
                let request = format!("{method} /{number}/{index}");
                group.1.push((request, contents.clone().unwrap_or_default()));
            }
            text.extend(b"# comment\n \t\n\n");
            let mut think_before = 0;
            for (think, mut requests) in groups {
                let rest = requests.split_off(1);
                expected.push((think_before, requests));
                if !rest.is_empty() {
                    expected.push((0, rest));
                }
                think_before = think;
            }
        }
        let file = file(&text);
        let think = Duration::from_millis(700);
        let count = Some(sessions.len() as u64);
        let source = Source::Wsesslog { sessions: count, think, path: file.path().into() };
        let workload = load(&source).unwrap();
        let mut cursor = workload.cursor(0, 1, 1);
        let mut found = Vec::new();
        while let Some(bursts) = session(&workload, &mut cursor) {
            for (think, messages) in bursts {
                let requests = messages.iter().map(|&index| {
                    let bytes = &workload.message(index).bytes;
                    let end = bytes.windows(4).position(|end| end == b"\r\n\r\n").unwrap();
                    (describe_message(&workload, index), bytes[end + 4..].to_vec())
                });
                found.push((think.as_millis() as u32, requests.collect()));
            }
        }
        prop_assert_eq!(found, expected);
    }
}
