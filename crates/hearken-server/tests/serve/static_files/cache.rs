//! The cache: freshness and limits.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hearken::io::Body;
use hearken_http::{Limits, RequestParser};

use super::support::{Fixture, Response, today, wait_until_cacheable};

/// Creates a site that caches `small` in memory and `large` as a descriptor.
fn fixture() -> Fixture {
    let fixture = Fixture::with(|config| config.max_cached_file_bytes = 10);
    fixture.write("small", "small 0000");
    fixture.write("large", "large 000000000");
    wait_until_cacheable();
    fixture
}

#[test]
fn files_are_unchanged_within_a_turn_and_fresh_in_the_next() {
    for name in ["small", "large"] {
        let mut fixture = fixture();
        let target = format!("/{name}");
        let old = fixture.get(&target).text();
        assert_eq!(fixture.get(&target).text(), old);
        // After the name refers to another file, the cached one is served until the turn ends.
        let new = old.replace('0', "1");
        fixture.write("new", &new);
        fs::rename(fixture.path("new"), fixture.path(name)).unwrap();
        assert_eq!(fixture.request_same_turn("GET", &target, "").text(), old);
        assert_eq!(fixture.get(&target).text(), new);
    }
}

#[test]
fn changes_are_seen_in_the_next_turn() {
    for name in ["small", "large"] {
        let mut fixture = fixture();
        let target = format!("/{name}");
        let length = fixture.get(&target).body.len();
        for pause in [true, false] {
            let mut etags = Vec::new();
            let mut see = |fixture: &mut Fixture, content: Option<&str>| {
                for _ in 0..2 {
                    let response = fixture.get(&target);
                    match content {
                        Some(content) => assert_eq!(response.text(), content, "{target}"),
                        None => assert_eq!(response.status, 404, "{target}"),
                    }
                    etags.extend(response.field("ETag").map(str::to_owned));
                    if pause {
                        wait_until_cacheable();
                    }
                }
            };
            let content = |letter: &str| letter.repeat(length);
            // Overwritten with the same length.
            fixture.write(name, content("a"));
            see(&mut fixture, Some(&content("a")));
            fixture.write(name, content("b"));
            see(&mut fixture, Some(&content("b")));
            // Longer, shorter, empty.
            fixture.write(name, content("long"));
            see(&mut fixture, Some(&content("long")));
            fixture.write(name, "s");
            see(&mut fixture, Some("s"));
            fixture.write(name, "");
            see(&mut fixture, Some(""));
            // Replaced by a file with the old modification time.
            fixture.write(name, content("a"));
            see(&mut fixture, Some(&content("a")));
            let time = fs::metadata(fixture.path(name)).unwrap().modified().unwrap();
            fixture.write("other", content("c"));
            let other = fs::File::options().write(true).open(fixture.path("other")).unwrap();
            other.set_modified(time).unwrap();
            fs::rename(fixture.path("other"), fixture.path(name)).unwrap();
            see(&mut fixture, Some(&content("c")));
            // Overwritten, then set to the old modification time.
            fixture.write(name, content("d"));
            let file = fs::File::options().write(true).open(fixture.path(name)).unwrap();
            file.set_modified(time).unwrap();
            see(&mut fixture, Some(&content("d")));
            // Removed and created again.
            fs::remove_file(fixture.path(name)).unwrap();
            see(&mut fixture, None);
            fixture.write(name, content("e"));
            see(&mut fixture, Some(&content("e")));
            // Now a directory, and a file again.
            fs::remove_file(fixture.path(name)).unwrap();
            fs::create_dir(fixture.path(name)).unwrap();
            assert_eq!(fixture.get(&target).status, 301);
            fs::remove_dir(fixture.path(name)).unwrap();
            fixture.write(name, content("f"));
            see(&mut fixture, Some(&content("f")));
        }
    }
}

#[test]
fn renamed_directories_are_noticed() {
    let mut fixture = Fixture::new();
    fixture.write("a/f", "a");
    fixture.write("b/f", "b");
    fixture.write("a/index.html", "ia");
    wait_until_cacheable();
    assert_eq!((fixture.get("/a/f").text(), fixture.get("/a/").text()), ("a".into(), "ia".into()));
    fs::rename(fixture.path("a"), fixture.path("c")).unwrap();
    assert_eq!((fixture.get("/a/f").status, fixture.get("/a/").status), (404, 404));
    fs::rename(fixture.path("b"), fixture.path("a")).unwrap();
    assert_eq!(fixture.get("/a/f").text(), "b");
    assert_eq!((fixture.get("/a/").status, fixture.get("/c/").text()), (404, "ia".into()));
}

#[test]
fn directories_replaced_by_links_out_of_the_root_are_noticed() {
    // A directory on the path to a cached file is replaced by a link that leads out of the root.
    for moved in ["a", "a/b", "a/b/c"] {
        let mut fixture = Fixture::with(|config| config.max_cached_file_bytes = 10);
        fixture.write("a/b/c/small", "small");
        fixture.write("a/b/c/large", "large 000000000");
        fixture.write("a/b/c/index.html", "index");
        let link = |target: &str, name: &str| symlink(target, fixture.path(name)).unwrap();
        link("a/b/c", "link");
        link("a/b/c/small", "small");
        link("../a/b/c/large", "a/large");
        wait_until_cacheable();
        let targets =
            ["/a/b/c/small", "/a/b/c/large", "/a/b/c/", "/link/large", "/small", "/a/large"];
        for _ in 0..2 {
            for target in targets {
                assert_eq!(fixture.get(target).status, 200, "{target}");
            }
        }
        fixture.site.begin_turn();
        assert_eq!(fixture.request_same_turn("GET", "/a/b/c/small", "").status, 200);
        let aside = fixture.outer.path().join("aside");
        fs::rename(fixture.path(moved), &aside).unwrap();
        symlink(&aside, fixture.path(moved)).unwrap();
        // This file was found in this turn.
        assert_eq!(fixture.request_same_turn("GET", "/a/b/c/small", "").status, 200);
        for _ in 0..2 {
            for target in targets {
                assert_eq!(fixture.get(target).status, 404, "{target} {moved}");
            }
        }
        fs::remove_file(fixture.path(moved)).unwrap();
        fs::rename(&aside, fixture.path(moved)).unwrap();
        for _ in 0..2 {
            for target in targets {
                assert_eq!(fixture.get(target).status, 200, "{target} {moved}");
            }
        }
    }
}

#[test]
fn changed_links_within_the_root_are_followed() {
    // A link within the root is followed, and its target is looked up in each turn.
    let mut fixture = Fixture::with(|config| config.max_cached_file_bytes = 10);
    for directory in ["one", "two"] {
        fixture.write(format!("{directory}/small"), directory);
        fixture.write(format!("{directory}/large"), format!("{directory} 000000000"));
    }
    wait_until_cacheable();
    for directory in ["one", "two", "one"] {
        symlink(directory, fixture.path("new")).unwrap();
        fs::rename(fixture.path("new"), fixture.path("current")).unwrap();
        for _ in 0..2 {
            assert_eq!(fixture.get("/current/small").text(), directory);
            assert_eq!(fixture.get("/current/large").text(), format!("{directory} 000000000"));
        }
    }
    // After the root is replaced, links that leave the new root are rejected.
    let (root, old) = (fixture.outer.path().join("root"), fixture.outer.path().join("old"));
    fs::rename(&root, &old).unwrap();
    fs::create_dir(&root).unwrap();
    symlink("../old/one", root.join("one")).unwrap();
    symlink("../old/one", root.join("current")).unwrap();
    for target in ["/current/small", "/current/large", "/one/small", "/one/large"] {
        assert_eq!(fixture.get(target).status, 404, "{target}");
    }
}

/// Deployments rename the directory or change a link to it.
#[test]
fn a_replaced_root_is_served() {
    let mut fixture = Fixture::new();
    fixture.write("f", "old");
    wait_until_cacheable();
    assert_eq!(fixture.get("/f").text(), "old");
    let root = fixture.path("");
    let root = root.parent().unwrap().join("root");
    let aside = fixture.outer.path().join("aside");
    fs::rename(&root, &aside).unwrap();
    // Until the name exists again, the open directory is served.
    assert_eq!(fixture.get("/f").text(), "old");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("f"), "new").unwrap();
    assert_eq!(fixture.get("/f").text(), "new");
    assert_eq!(fixture.get("/f").text(), "new");
}

#[test]
fn changes_within_a_clock_tick_are_seen() {
    let mut fixture = fixture();
    let mut named: HashMap<String, String> = HashMap::new();
    for round in 0..1_000 {
        for (name, content) in
            [("small", format!("s{round:09}")), ("large", format!("l{round:014}"))]
        {
            fs::write(fixture.path(name), &content).unwrap();
            let response = fixture.get(&format!("/{name}"));
            assert_eq!(response.text(), content);
            let etag = response.field("ETag").unwrap().to_owned();
            assert_eq!(named.insert(etag, content), None, "one ETag for two contents");
        }
    }
}

#[test]
fn etags_of_recent_changes_are_not_reused() {
    // A file that may still change within the resolution of its times gets a new ETag in each response.
    for name in ["small", "large"] {
        let mut fixture = fixture();
        let target = format!("/{name}");
        let etag = |response: Response| response.field("ETag").unwrap().to_owned();
        let in_time = (0..100).any(|_| {
            let began = Instant::now();
            fixture.write(name, "written just now");
            let (first, second) = (etag(fixture.get(&target)), etag(fixture.get(&target)));
            // On a busy machine the second response may be too late.
            let in_time = began.elapsed() < Duration::from_millis(10);
            assert!(!in_time || first != second);
            in_time
        });
        assert!(in_time);
        wait_until_cacheable();
        assert_eq!(etag(fixture.get(&target)), etag(fixture.get(&target)));
    }
}

#[test]
fn concurrent_writes_yield_consistent_responses() {
    // While a writer replaces a file atomically, each response has one version, and each ETag names one.
    for (name, length) in [("small", 5_000), ("large", 20_000)] {
        let mut fixture = Fixture::with(|config| config.max_cached_file_bytes = 10_000);
        fixture.write(name, "a".repeat(length));
        let stop = Arc::new(AtomicBool::new(false));
        let (path, new) = (fixture.path(name), fixture.path("new"));
        let writer = thread::spawn({
            let stop = stop.clone();
            move || {
                for letter in (b'a'..=b'z').cycle() {
                    fs::write(&new, vec![letter; length]).unwrap();
                    fs::rename(&new, &path).unwrap();
                    if letter == b'k' {
                        thread::sleep(Duration::from_millis(30));
                    }
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                }
            }
        });
        let mut named: HashMap<String, u8> = HashMap::new();
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(250) {
            let response = fixture.get(&format!("/{name}"));
            assert_eq!((response.status, response.body.len()), (200, length));
            let first = response.body[0];
            assert!(
                response.body.iter().all(|&byte| byte == first),
                "two versions in one response"
            );
            let etag = response.field("ETag").unwrap().to_owned();
            assert_eq!(*named.entry(etag).or_insert(first), first, "one ETag for two versions");
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap();
    }
}

#[test]
fn the_cache_is_bounded() {
    let mut fixture = Fixture::with(|config| {
        config.max_cache_bytes = 100_000;
        config.max_cached_file_bytes = 2_000;
        config.max_open_files = 5;
    });
    for number in 0..400 {
        fixture.write(format!("s{number}"), vec![b's'; number * 5]);
        fixture.write(format!("l{number}"), vec![b'l'; 2_001 + number]);
    }
    wait_until_cacheable();
    for _ in 0..2 {
        for number in 0..400 {
            assert_eq!(fixture.get(&format!("/s{number}")).body.len(), number * 5);
            assert_eq!(fixture.get(&format!("/l{number}")).body.len(), 2_001 + number);
            let (bytes, files) = fixture.site.cache_usage();
            assert!(bytes <= 100_000 && files <= 5);
        }
    }
    let (bytes, files) = fixture.site.cache_usage();
    assert!(bytes > 90_000 && files == 5, "{bytes} {files}");
}

#[test]
fn spellings_of_a_path_share_an_entry() {
    // A file is cached once for all spellings of its path. Missing files are not cached.
    let mut fixture = Fixture::new();
    fixture.write("abc/def", "x");
    wait_until_cacheable();
    fixture.get("/abc/def");
    let kept = fixture.site.cache_usage();
    for number in 0..1_000u32 {
        let spelled: String = "abc/def"
            .bytes()
            .enumerate()
            .map(|(at, byte)| match number >> at & 1 {
                1 if byte != b'/' => format!("%{byte:02x}"),
                _ => char::from(byte).to_string(),
            })
            .collect();
        assert_eq!(fixture.get(&format!("/./{spelled}?{number}")).text(), "x");
        assert_eq!(fixture.get(&format!("/none{number}")).status, 404);
    }
    assert_eq!(fixture.site.cache_usage(), kept);
}

#[test]
fn the_cache_can_be_disabled() {
    let mut fixture = Fixture::with(|config| {
        config.max_cache_bytes = 0;
        config.max_cached_file_bytes = 100;
        config.max_open_files = 0;
    });
    fixture.write("small", "s");
    fixture.write("large", [b'l'; 101]);
    wait_until_cacheable();
    for _ in 0..3 {
        assert_eq!(fixture.get("/small").text(), "s");
        assert_eq!(fixture.get("/large").body.len(), 101);
        assert_eq!(fixture.site.cache_usage(), (0, 0));
    }
}

#[test]
fn a_file_replaced_while_it_is_sent_is_sent_completely() {
    // A response continues with the same file after another file takes its name.
    let mut fixture = fixture();
    let bytes = b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n";
    let request = RequestParser::new().parse(bytes, &Limits::default()).unwrap().unwrap();
    let mut out = Vec::new();
    let answer = fixture.site.answer(&request, &today(), true, &mut out).append_to(&mut out);
    fixture.write("new", "another");
    fs::rename(fixture.path("new"), fixture.path("large")).unwrap();
    assert_eq!(fixture.get("/large").text(), "another");
    let Body::File(part) = answer.body else { panic!("{answer:?}") };
    let mut bytes = [0; 15];
    rustix::io::pread(&part.file, &mut bytes, part.offset).unwrap();
    assert_eq!(&bytes, b"large 000000000");
}

#[test]
fn tidying_closes_unused_files() {
    let mut fixture = fixture();
    fixture.get("/large");
    fixture.get("/large");
    assert_eq!(fixture.site.cache_usage().1, 1);
    assert!(fixture.site.close_unused(), "a used file was closed");
    let bytes = b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n";
    let request = RequestParser::new().parse(bytes, &Limits::default()).unwrap().unwrap();
    let mut out = Vec::new();
    let answer = fixture.site.answer(&request, &today(), true, &mut out).append_to(&mut out);
    assert!(
        fixture.site.close_unused() && fixture.site.close_unused(),
        "a file was closed while it is sent"
    );
    drop(answer);
    assert!(!fixture.site.close_unused());
    assert_eq!(fixture.site.cache_usage().1, 0);
    assert_eq!(fixture.get("/large").text(), "large 000000000");
}
