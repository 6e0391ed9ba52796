//! Distribution of a workload over several threads.

use std::time::Duration;

use proptest::prelude::*;

use super::{Settings, Source, describe_message, file, format_bursts, load, load_with, session};

proptest! {
    // No request of a list is lost or repeated for any number of shards.
    #[test]
    fn shards_together_cover_the_list(
        len in 1..60usize,
        shards in 1..6u32,
        repeat in any::<bool>(),
        per_connection in prop::option::of(1..6u32),
        pipeline in 1..4usize,
    ) {
        let text: String = (0..len).map(|number| format!("/{number}\0")).collect();
        let file = file(text);
        let source = Source::Wlog { path: file.path().into(), repeat };
        let workload = load_with(&source, Settings { per_connection, think: None, pipeline });
        let workload = workload.unwrap();
        let total = if repeat { 200 } else { len };
        let mut found = vec![None; total];
        for shard in 0..shards {
            let mut cursor = workload.cursor(shard, shards, 1);
            let mut at = shard as usize;
            let mut record = |index: u32| {
                if let Some(slot) = found.get_mut(at) {
                    assert_eq!(slot.replace(describe_message(&workload, index)), None);
                }
                at += shards as usize;
                at < total
            };
            match per_connection {
                None => {
                    while cursor.next_request().is_some_and(&mut record) {}
                }
                Some(max) => {
                    let mut more = true;
                    while more && let Some(bursts) = session(&workload, &mut cursor) {
                        prop_assert!(!bursts.is_empty());
                        let messages: Vec<u32> =
                            bursts.into_iter().flat_map(|(_, messages)| messages).collect();
                        prop_assert!(messages.len() <= max as usize);
                        more = messages.into_iter().fold(true, |_, index| record(index));
                    }
                }
            }
            if !repeat {
                prop_assert_eq!(cursor.next_request(), None);
                prop_assert_eq!(cursor.next_session(), None);
            }
        }
        for (number, found) in found.into_iter().enumerate() {
            prop_assert_eq!(found, Some(format!("GET /{}", number % len)));
        }
    }

    // No session is lost or repeated for any number of shards.
    #[test]
    fn shards_together_cover_the_sessions(
        templates in 1..5u64,
        count in 0..20u64,
        shards in 1..6u32,
    ) {
        let text: String = (0..templates).map(|number| format!("/{number}\n\n")).collect();
        let file = file(text);
        let path = file.path().to_owned();
        let source = Source::Wsesslog { sessions: Some(count), think: Duration::ZERO, path };
        let workload = load(&source).unwrap();
        let mut found = Vec::new();
        for shard in 0..shards {
            let mut cursor = workload.cursor(shard, shards, 1);
            let mut number = u64::from(shard);
            while let Some(bursts) = session(&workload, &mut cursor) {
                let expected = format!("0: GET /{}; ", number % templates);
                prop_assert_eq!(format_bursts(&workload, &bursts), expected);
                found.push(number);
                number += u64::from(shards);
            }
        }
        found.sort_unstable();
        prop_assert_eq!(found, (0..count).collect::<Vec<_>>());
    }
}
