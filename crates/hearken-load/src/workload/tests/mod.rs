//! Complete workloads: the requests that cursors return for files of every kind.

use std::fmt::Write as _;
use std::io::Write as _;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tempfile::NamedTempFile;

mod lists;
mod messages;
mod sessions;
mod shards;

use super::wsesslog::Burst;
use super::{Count, Cursor, Distribution, RequestTemplate, Source, Workload};
use crate::url::Url;

/// The other arguments of [`load`].
#[derive(Clone, Copy, Default)]
struct Settings {
    per_connection: Option<u32>,
    think: Option<Duration>,
    pipeline: usize,
}

fn load_with(source: &Source, settings: Settings) -> Result<Arc<Workload>, String> {
    let per_connection = settings.per_connection.and_then(NonZeroU32::new).map(Count::exactly);
    let think = settings.think.map(Distribution::Constant);
    let pipeline = NonZeroUsize::new(settings.pipeline).unwrap_or(NonZeroUsize::MIN);
    let url = Url::parse("http://h/base").unwrap();
    Workload::load(&url, source, &RequestTemplate::default(), per_connection, think, pipeline)
        .map(Arc::new)
        .map_err(|error| error.to_string())
}

fn load(source: &Source) -> Result<Arc<Workload>, String> {
    load_with(source, Settings::default())
}

fn file(text: impl AsRef<[u8]>) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(text.as_ref()).unwrap();
    file
}

/// Returns a source of every kind that consists of one file.
fn sources(file: &NamedTempFile) -> [Source; 6] {
    let path = file.path().to_owned();
    [
        Source::Urls(path.clone()),
        Source::Wlog { path: path.clone(), repeat: false },
        Source::Wsesslog { sessions: Some(3), think: Duration::ZERO, path: path.clone() },
        Source::AccessLog { path: path.clone(), speed: 1.0, skip_invalid: false },
        Source::AccessLog { path: path.clone(), speed: 1.0, skip_invalid: true },
        Source::Trace(path),
    ]
}

/// Returns the method and target of a message.
fn describe_message(workload: &Workload, index: u32) -> String {
    let text = String::from_utf8_lossy(&workload.message(index).bytes).into_owned();
    text.split(" HTTP/1.1\r\n").next().unwrap().to_owned()
}

fn requests(workload: &Arc<Workload>, cursor: &mut Cursor, max: usize) -> Vec<String> {
    let next = || cursor.next_request().map(|index| describe_message(workload, index));
    std::iter::from_fn(next).take(max).collect()
}

/// Returns the bursts of the next session or connection with their messages.
fn session(workload: &Workload, cursor: &mut Cursor) -> Option<Vec<(Duration, Vec<u32>)>> {
    let mut script = cursor.next_session()?;
    let mut bursts = Vec::new();
    while let Some(Burst { think, messages }) = cursor.next_burst(&mut script) {
        let messages: Vec<_> = (0..messages).map(|_| cursor.next_message(&mut script)).collect();
        messages.iter().for_each(|&index| _ = workload.message(index));
        bursts.push((think, messages));
    }
    assert_eq!(cursor.next_burst(&mut script), None);
    Some(bursts)
}

fn format_bursts(workload: &Workload, bursts: &[(Duration, Vec<u32>)]) -> String {
    let mut text = String::new();
    for (think, messages) in bursts {
        write!(text, "{}:", think.as_millis()).unwrap();
        messages
            .iter()
            .for_each(|&index| write!(text, " {}", describe_message(workload, index)).unwrap());
        text += "; ";
    }
    text
}

#[test]
fn errors_contain_the_line_and_the_reason() {
    let wsesslog = |text: &str| (2usize, format!("/a\n{text}\n"));
    for (kind, (index, text), line, reason) in [
        (0, (0, "/a\n1e99 /b".to_owned()), 2, "invalid weight '1e99'"),
        (0, (0, "5".to_owned()), 1, "no URL"),
        (0, (0, "# x\n\n/a GET status=200 POST".to_owned()), 3, "unexpected word 'POST'"),
        (0, (0, "/a\n/b GET statut=200".to_owned()), 2, "unknown check"),
        (0, (0, "/ HEAD length=5".to_owned()), 1, "HEAD"),
        (0, (0, "http://other/".to_owned()), 1, "another server"),
        (0, (0, "a.html".to_owned()), 1, "invalid target"),
        (1, (1, "/a\0/b c\0".to_owned()), 2, "space"),
        (1, (1, "/a\n/b\n".to_owned()), 1, "line break"),
        (2, wsesslog("/b method=get"), 2, "capitals"),
        (2, wsesslog("/b think=-1"), 2, "seconds"),
        (2, wsesslog("/b think="), 2, "seconds"),
        (2, wsesslog("/b contents="), 2, "unknown argument"),
        (2, wsesslog("/b contents='x"), 2, "not closed"),
        (2, wsesslog("/b contents='x\\\n\\\ny' colour=red"), 4, "unknown argument"),
        (2, (2, "/b contents=\\".to_owned()), 1, "backslash"),
        (3, (3, "\n::1 - - [10/Oct/2000:13:55:36 -0700] \"-\" 408".to_owned()), 2, "request"),
        (3, (3, "x".to_owned()), 1, "combined"),
        (3, (3, "{\"ts\":1}".to_owned()), 1, "no request"),
        (3, (3, "{\"uri\":\"/\"}".to_owned()), 1, "no time"),
        (3, (3, "{".to_owned()), 1, "JSON"),
        (5, (5, "1 /a\n0.5 /b".to_owned()), 2, "earlier"),
        (5, (5, "x /a".to_owned()), 1, "expected seconds"),
        (5, (5, "1".to_owned()), 1, "no path"),
    ] {
        assert_eq!(kind, index);
        let file = file(&text);
        let error = load(&sources(&file)[kind]).unwrap_err();
        let (path, line) = (file.path().display().to_string(), format!("line {line}: "));
        let has_position = error.contains(&path) && error.contains(&line);
        assert!(has_position && error.contains(reason), "{text:?}: {error}");
    }
    let empty = file("# nothing\n\n");
    for kind in [0, 2, 4, 5] {
        let error = load(&sources(&empty)[kind]).unwrap_err();
        assert!(error.contains(&*empty.path().to_string_lossy()), "{error}");
    }
}

#[test]
fn the_seed_determines_the_requests() {
    let file = file("/a\n/b\n/c\n");
    let workload = load(&Source::Urls(file.path().into())).unwrap();
    let drawn = |shard, seed| requests(&workload, &mut workload.cursor(shard, 4, seed), 100);
    assert_eq!(drawn(1, 5), drawn(1, 5));
    assert_ne!(drawn(1, 5), drawn(1, 6));
    assert_ne!(drawn(1, 5), drawn(2, 5));
}

proptest! {
    #[test]
    fn no_archive_causes_a_panic(
        urls in prop::collection::vec("(http://h)?(/[a-zä]{0,3}| |:|#|\\?){0,3}", 0..4),
        start in "-?00[0-9]{4}-01-01T00:00:00Z|[0-9]{4}-0[1-3]-2[0-9]T00:00:00.[0-9]{1,9}[+-]0[0-9]:00|.{0,9}",
        time in prop_oneof![any::<f64>(), -5.0..5e3],
        name in ".{0,3}",
        value in ".{0,9}",
    ) {
        let entry = |url: &String| serde_json::json!({
            "startedDateTime": start,
            "time": time,
            "pageref": if url.is_empty() { None } else { Some(url) },
            "request": {
                "method": "POST",
                "url": url,
                "headers": [{"name": name, "value": value}],
                "postData": {"text": value},
            },
        });
        let entries: Vec<_> = urls.iter().map(entry).collect();
        let file = file(serde_json::json!({"log": {"entries": entries}}).to_string());
        if let Ok(workload) = load(&Source::Har(file.path().into())) {
            prop_assert!(!requests(&workload, &mut workload.cursor(0, 1, 1), 10).is_empty());
            prop_assert!(session(&workload, &mut workload.cursor(0, 1, 1)).is_some());
        }
    }

    #[test]
    fn no_reader_panics(
        text in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..200),
            "(/[a-z]{0,3}| |\t|\n|\0|GET|method=|think=|contents=|'|\\\\|[0-9.]{1,3}|status=|#|h://|\\[|\"|\\{|\\}|:|\"ts\"|\"uri\"|\\[10/Oct/2000:13:55:36 -0700\\] \")*"
                .prop_map(String::into_bytes),
        ],
    ) {
        let file = file(text);
        for source in sources(&file).into_iter().chain([Source::Har(file.path().into())]) {
            if let Ok(workload) = load(&source) {
                let mut cursor = workload.cursor(0, 1, 1);
                requests(&workload, &mut cursor, 100);
                session(&workload, &mut workload.cursor(0, 1, 1));
                prop_assert!(workload.timestamps().is_none_or(|at| at.is_sorted()));
                workload.describe();
            }
        }
    }
}
