//! Conversion of paths, which never leave the directory in which they are looked up.

use hearken_http::path::{PathError, resolve};
use proptest::prelude::*;

#[test]
fn normalises_valid_paths() {
    for (path, want, trailing_slash, hidden) in [
        ("/", "", true, false),
        ("//", "", true, false),
        ("/a", "a", false, false),
        ("/a/", "a", true, false),
        ("/a//b", "a/b", false, false),
        ("//a", "a", false, false),
        ("/./a/.", "a", true, false),
        ("/a/b/..", "a", true, false),
        ("/a/../b", "b", false, false),
        ("/a/%2e%2E/b", "b", false, false),
        ("/a/%2e/b", "a/b", false, false),
        ("/.git/x", ".git/x", false, true),
        ("/a/.x", "a/.x", false, true),
        ("/.git/../a", "a", false, false),
        ("/...", "...", false, true),
        ("/a..", "a..", false, false),
        ("/%41%20b", "A b", false, false),
        ("/%252e%252e", "%2e%2e", false, false),
        ("/a;b=c/d+e", "a;b=c/d+e", false, false),
    ] {
        let mut out = b"stale".to_vec();
        let safe = resolve(path.as_bytes(), &mut out).unwrap();
        assert_eq!(safe.path, want.as_bytes(), "{path:?}");
        assert_eq!(safe.trailing_slash, trailing_slash, "{path:?}");
        assert_eq!(safe.has_hidden_segment, hidden, "{path:?}");
    }
}

#[test]
fn rejects_invalid_paths() {
    for (path, want) in [
        ("", PathError::NotRooted),
        ("a", PathError::NotRooted),
        ("../a", PathError::NotRooted),
        ("/..", PathError::Escape),
        ("/../a", PathError::Escape),
        ("/a/../..", PathError::Escape),
        ("/a/../../a", PathError::Escape),
        ("/%2e%2e/a", PathError::Escape),
        ("/.%2e/a", PathError::Escape),
        ("/a%2fb", PathError::Separator),
        ("/..%2F..%2Fa", PathError::Separator),
        ("/a\\b", PathError::Separator),
        ("/..%5ca", PathError::Separator),
        ("/a%00", PathError::Control),
        ("/a%0a", PathError::Control),
        ("/a%7f", PathError::Control),
        ("/a\0", PathError::Control),
        ("/%", PathError::Encoding),
        ("/%4", PathError::Encoding),
        ("/%4/1", PathError::Encoding),
        ("/%g1", PathError::Encoding),
        ("/%+1", PathError::Encoding),
        ("/%u0041", PathError::Encoding),
    ] {
        assert_eq!(resolve(path.as_bytes(), &mut Vec::new()), Err(want), "{path:?}");
        assert!([400, 404].contains(&want.status()));
    }
}

fn path_like() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        6 => Just(b"/".to_vec()),
        2 => Just(b"..".to_vec()),
        1 => Just(b".".to_vec()),
        3 => Just(b"a".to_vec()),
        1 => Just(b"%2e".to_vec()),
        1 => Just(b"%2E%2e".to_vec()),
        1 => Just(b"%252e".to_vec()),
        1 => Just(b"%2f".to_vec()),
        1 => prop::collection::vec(any::<u8>(), 1..3),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| [b"/", &pieces.concat()[..]].concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_resolved_path_stays_below_the_root(path in path_like()) {
        let mut out = Vec::new();
        if let Ok(safe) = resolve(&path, &mut out) {
            let text = safe.path;
            prop_assert!(!text.iter().any(|byte| byte.is_ascii_control() || *byte == b'\\'));
            prop_assert!(text.len() < path.len());
            let is_root = text.is_empty();
            for segment in text.split(|&byte| byte == b'/') {
                prop_assert!(is_root || !segment.is_empty(), "absolute path or empty segment");
                prop_assert!(segment != b"." && segment != b"..");
            }
            let hidden = text.split(|&byte| byte == b'/').any(|s| s.starts_with(b"."));
            prop_assert_eq!(safe.has_hidden_segment, hidden);
        }
    }

    // A path that was resolved and encoded again resolves to itself.
    #[test]
    fn resolving_is_idempotent(path in path_like()) {
        let (mut out, mut again) = (Vec::new(), Vec::new());
        if let Ok(safe) = resolve(&path, &mut out) {
            let mut encoded = b"/".to_vec();
            for &byte in safe.path {
                match byte {
                    b'%' => encoded.extend_from_slice(b"%25"),
                    _ => encoded.push(byte),
                }
            }
            prop_assert_eq!(resolve(&encoded, &mut again).unwrap().path, safe.path);
        }
    }
}
