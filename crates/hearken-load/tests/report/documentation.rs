//! docs/load-result.md lists exactly the fields of a result.

use std::collections::BTreeSet;

use crate::fixtures::{Piece, report};
use hearken_load::{
    Http2, Objectives, Part, Report, Server, ServerSample, ServerUsage, SlowClients, SlowGroup,
    WebSockets,
};
use serde_json::Value;

const DOCUMENT: &str = include_str!("../../../../docs/load-result.md");

/// Creates a result with all optional fields.
fn full() -> Report {
    let mut full = report(&[Piece { latencies: vec![1], ..Piece::default() }]);
    full.requests_per_connection = Some("1".to_owned());
    full.http2 = Some(Http2::default());
    full.command = vec!["hearken".to_owned()];
    full.labels.insert("machine".to_owned(), "a".to_owned());
    full.machine = "a machine".to_owned();
    full.first_errors = [("other".to_owned(), "malformed reply".to_owned())].into();
    // The names of labels are not fields, so this one has the name of a field.
    full.labels = [("machine".to_owned(), "a".to_owned())].into();
    let part = Part {
        rank: 0,
        size: 1,
        scheduled_start_unix_ns: Some(1),
        start_delay_ns: 1,
        clock_synchronised: Some(true),
        clock_max_error_us: Some(1),
    };
    full.part = Some(part);
    full.parts = vec![part];
    let samples = vec![ServerSample::default()];
    let total = ServerUsage::default();
    full.objectives = "p99<5ms".parse::<Objectives>().unwrap().evaluate(&full);
    full.websocket = Some(WebSockets::default());
    let mut slow = SlowClients::default();
    slow.readers = Some(SlowGroup::default());
    slow.senders = Some(SlowGroup::default());
    full.slow_clients = Some(slow);
    full.server = Some(Server { samples, total, ..Server::default() });
    let objectives: Objectives = "p99<5ms,errors<1%".parse().unwrap();
    full.objectives = objectives.evaluate(&full);
    full
}

fn keys(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                into.insert(key.clone());
                keys(value, into);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| keys(value, into)),
        _ => {}
    }
}

#[test]
fn documents_all_fields() {
    let mut all = BTreeSet::new();
    keys(&serde_json::to_value(full()).unwrap(), &mut all);
    assert!(all.len() > 100, "{all:?}");
    let missing: Vec<_> =
        all.iter().filter(|key| !DOCUMENT.contains(&format!("`{key}`"))).collect();
    assert!(missing.is_empty(), "docs/load-result.md lacks {missing:?}");
}

#[test]
fn documents_no_other_fields() {
    let mut all = BTreeSet::new();
    keys(&serde_json::to_value(full()).unwrap(), &mut all);
    let rows = DOCUMENT.lines().filter_map(|line| line.strip_prefix("| `"));
    let named = rows.flat_map(|row| row.split('|').next().unwrap_or_default().split("`, `"));
    let named: Vec<_> = named.map(|name| name.trim().trim_end_matches('`')).collect();
    assert!(named.len() > 60, "{named:?}");
    for name in named {
        assert!(all.contains(name), "docs/load-result.md lists {name}, which no result has");
    }
    assert!(DOCUMENT.contains(hearken_load::SCHEMA));
}
