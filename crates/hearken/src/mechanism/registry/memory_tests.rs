//! The registry over a mechanism that Miri can run: `scripts/miri` checks its memory accesses.

use std::io::Write;

use super::*;
use crate::mechanism::find;

#[test]
fn sources_are_watched_closed_and_replaced() {
    let mut registry = Registry::new(find("epoll-edge").unwrap().open().unwrap());
    for _ in 0..3 {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let token = registry.insert(reader);
        registry.declare(token, Interest::READ).unwrap();
        writer.write_all(b"x").unwrap();
        let count = registry.wait(8, Some(Duration::ZERO)).unwrap();
        let events: Vec<_> = (0..count).filter_map(|index| registry.event(index)).collect();
        assert_eq!(events.iter().map(|event| event.token).collect::<Vec<_>>(), [token]);
        // An event of a closed source is not reported.
        writer.write_all(b"y").unwrap();
        registry.close(token);
        let count = registry.wait(8, Some(Duration::ZERO)).unwrap();
        assert!((0..count).all(|index| registry.event(index).is_none()));
    }
    assert!(registry.is_empty());
}
