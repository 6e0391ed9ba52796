//! What is kept, how it is bounded, and that it is never stale.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hearken::io::Body;
use hearken_http::{Limits, RequestParser};

use crate::support::{Got, Place, settle, today};

/// A site where `small` is kept in memory and `large` as a descriptor.
fn place() -> Place {
    let place = Place::with(|config| config.cache_file_bytes = 10);
    place.write("small", "small 0000");
    place.write("large", "large 000000000");
    settle();
    place
}

#[test]
fn unchanged_within_a_turn_and_fresh_in_the_next() {
    for name in ["small", "large"] {
        let mut place = place();
        let target = format!("/{name}");
        let old = place.get(&target).text();
        assert_eq!(place.get(&target).text(), old);
        // A name for another file: what is kept under it goes on being served in this turn.
        let new = old.replace('0', "1");
        place.write("new", &new);
        fs::rename(place.path("new"), place.path(name)).unwrap();
        assert_eq!(place.ask_again("GET", &target, "").text(), old);
        assert_eq!(place.get(&target).text(), new);
    }
}

#[test]
fn every_kind_of_change_is_seen_in_the_next_turn() {
    for name in ["small", "large"] {
        let mut place = place();
        let target = format!("/{name}");
        let length = place.get(&target).body.len();
        for pause in [true, false] {
            let mut etags = Vec::new();
            let mut see = |place: &mut Place, content: Option<&str>| {
                for _ in 0..2 {
                    let got = place.get(&target);
                    match content {
                        Some(content) => assert_eq!(got.text(), content, "{target}"),
                        None => assert_eq!(got.status, 404, "{target}"),
                    }
                    etags.extend(got.field("ETag").map(str::to_owned));
                    if pause {
                        settle();
                    }
                }
            };
            let content = |letter: &str| letter.repeat(length);
            // Written over, with the same length.
            place.write(name, content("a"));
            see(&mut place, Some(&content("a")));
            place.write(name, content("b"));
            see(&mut place, Some(&content("b")));
            // Longer, shorter, empty.
            place.write(name, content("long"));
            see(&mut place, Some(&content("long")));
            place.write(name, "s");
            see(&mut place, Some("s"));
            place.write(name, "");
            see(&mut place, Some(""));
            // Replaced, with the old time of modification.
            place.write(name, content("a"));
            see(&mut place, Some(&content("a")));
            let time = fs::metadata(place.path(name)).unwrap().modified().unwrap();
            place.write("other", content("c"));
            let other = fs::File::options().write(true).open(place.path("other")).unwrap();
            other.set_modified(time).unwrap();
            fs::rename(place.path("other"), place.path(name)).unwrap();
            see(&mut place, Some(&content("c")));
            // Written over, with the old time of modification.
            place.write(name, content("d"));
            let file = fs::File::options().write(true).open(place.path(name)).unwrap();
            file.set_modified(time).unwrap();
            see(&mut place, Some(&content("d")));
            // Gone, and come back.
            fs::remove_file(place.path(name)).unwrap();
            see(&mut place, None);
            place.write(name, content("e"));
            see(&mut place, Some(&content("e")));
            // Now a directory, and a file again.
            fs::remove_file(place.path(name)).unwrap();
            fs::create_dir(place.path(name)).unwrap();
            assert_eq!(place.get(&target).status, 301);
            fs::remove_dir(place.path(name)).unwrap();
            place.write(name, content("f"));
            see(&mut place, Some(&content("f")));
        }
    }
}

#[test]
fn a_directory_that_moves_takes_its_files_along() {
    let mut place = Place::new();
    place.write("a/f", "a");
    place.write("b/f", "b");
    place.write("a/index.html", "ia");
    settle();
    assert_eq!((place.get("/a/f").text(), place.get("/a/").text()), ("a".into(), "ia".into()));
    fs::rename(place.path("a"), place.path("c")).unwrap();
    assert_eq!((place.get("/a/f").status, place.get("/a/").status), (404, 404));
    fs::rename(place.path("b"), place.path("a")).unwrap();
    assert_eq!(place.get("/a/f").text(), "b");
    assert_eq!((place.get("/a/").status, place.get("/c/").text()), (404, "ia".into()));
}

/// A directory on the way to a cached file, or a link that leads to it, becomes a link out of the root.
#[test]
fn a_directory_replaced_by_a_link_out_of_the_root() {
    for moved in ["a", "a/b", "a/b/c"] {
        let mut place = Place::with(|config| config.cache_file_bytes = 10);
        place.write("a/b/c/small", "small");
        place.write("a/b/c/large", "large 000000000");
        place.write("a/b/c/index.html", "index");
        let link = |target: &str, name: &str| symlink(target, place.path(name)).unwrap();
        link("a/b/c", "link");
        link("a/b/c/small", "small");
        link("../a/b/c/large", "a/large");
        settle();
        let targets =
            ["/a/b/c/small", "/a/b/c/large", "/a/b/c/", "/link/large", "/small", "/a/large"];
        for _ in 0..2 {
            for target in targets {
                assert_eq!(place.get(target).status, 200, "{target}");
            }
        }
        place.site.new_turn();
        assert_eq!(place.ask_again("GET", "/a/b/c/small", "").status, 200);
        let aside = place.outer.path().join("aside");
        fs::rename(place.path(moved), &aside).unwrap();
        symlink(&aside, place.path(moved)).unwrap();
        // It was found in this turn.
        assert_eq!(place.ask_again("GET", "/a/b/c/small", "").status, 200);
        for _ in 0..2 {
            for target in targets {
                assert_eq!(place.get(target).status, 404, "{target} {moved}");
            }
        }
        fs::remove_file(place.path(moved)).unwrap();
        fs::rename(&aside, place.path(moved)).unwrap();
        for _ in 0..2 {
            for target in targets {
                assert_eq!(place.get(target).status, 200, "{target} {moved}");
            }
        }
    }
}

/// A link within the root is followed, and what it leads to is fresh in each turn.
#[test]
fn a_link_within_the_root_is_turned() {
    let mut place = Place::with(|config| config.cache_file_bytes = 10);
    for directory in ["one", "two"] {
        place.write(format!("{directory}/small"), directory);
        place.write(format!("{directory}/large"), format!("{directory} 000000000"));
    }
    settle();
    for directory in ["one", "two", "one"] {
        symlink(directory, place.path("new")).unwrap();
        fs::rename(place.path("new"), place.path("current")).unwrap();
        for _ in 0..2 {
            assert_eq!(place.get("/current/small").text(), directory);
            assert_eq!(place.get("/current/large").text(), format!("{directory} 000000000"));
        }
    }
    // The links of a root that is no more do not count.
    let (root, old) = (place.outer.path().join("root"), place.outer.path().join("old"));
    fs::rename(&root, &old).unwrap();
    fs::create_dir(&root).unwrap();
    symlink("../old/one", root.join("one")).unwrap();
    symlink("../old/one", root.join("current")).unwrap();
    for target in ["/current/small", "/current/large", "/one/small", "/one/large"] {
        assert_eq!(place.get(target).status, 404, "{target}");
    }
}

/// A deployment that turns a link, and one that renames the directory.
#[test]
fn the_root_itself_is_replaced() {
    let mut place = Place::new();
    place.write("f", "old");
    settle();
    assert_eq!(place.get("/f").text(), "old");
    let root = place.path("");
    let root = root.parent().unwrap().join("root");
    let aside = place.outer.path().join("aside");
    fs::rename(&root, &aside).unwrap();
    // There is nothing by this name, until there is another: the open directory is served.
    assert_eq!(place.get("/f").text(), "old");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("f"), "new").unwrap();
    assert_eq!(place.get("/f").text(), "new");
    assert_eq!(place.get("/f").text(), "new");
}

#[test]
fn changes_within_one_tick_of_the_clock() {
    let mut place = place();
    let mut named: HashMap<String, String> = HashMap::new();
    for round in 0..3_000 {
        for (name, content) in
            [("small", format!("s{round:09}")), ("large", format!("l{round:014}"))]
        {
            fs::write(place.path(name), &content).unwrap();
            let got = place.get(&format!("/{name}"));
            assert_eq!(got.text(), content);
            let etag = got.field("ETag").unwrap().to_owned();
            assert_eq!(named.insert(etag, content), None, "an ETag of two contents");
        }
    }
}

/// What may yet change without being seen to has an ETag for this once; what may not, for good.
#[test]
fn etags_of_what_has_just_changed() {
    for name in ["small", "large"] {
        let mut place = place();
        let target = format!("/{name}");
        let etag = |got: Got| got.field("ETag").unwrap().to_owned();
        let in_time = (0..100).any(|_| {
            let began = Instant::now();
            place.write(name, "written just now");
            let (first, second) = (etag(place.get(&target)), etag(place.get(&target)));
            // On a machine that is busy with something else, it may be too late.
            let in_time = began.elapsed() < Duration::from_millis(10);
            assert!(!in_time || first != second);
            in_time
        });
        assert!(in_time);
        settle();
        assert_eq!(etag(place.get(&target)), etag(place.get(&target)));
    }
}

/// A writer changes a file in one step while it is read: each answer is of one version, and each
/// ETag names one.
#[test]
fn a_writer_at_work() {
    for (name, length) in [("small", 5_000), ("large", 20_000)] {
        let mut place = Place::with(|config| config.cache_file_bytes = 10_000);
        place.write(name, "a".repeat(length));
        let stop = Arc::new(AtomicBool::new(false));
        let (path, new) = (place.path(name), place.path("new"));
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
        while began.elapsed() < Duration::from_millis(400) {
            let got = place.get(&format!("/{name}"));
            assert_eq!((got.status, got.body.len()), (200, length));
            let first = got.body[0];
            assert!(got.body.iter().all(|&byte| byte == first), "two versions in one answer");
            let etag = got.field("ETag").unwrap().to_owned();
            assert_eq!(*named.entry(etag).or_insert(first), first, "an ETag of two versions");
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap();
    }
}

#[test]
fn bounded_under_many_files() {
    let mut place = Place::with(|config| {
        config.cache_bytes = 100_000;
        config.cache_file_bytes = 2_000;
        config.open_files = 5;
    });
    for number in 0..400 {
        place.write(format!("s{number}"), vec![b's'; number * 5]);
        place.write(format!("l{number}"), vec![b'l'; 2_001 + number]);
    }
    settle();
    for _ in 0..2 {
        for number in 0..400 {
            assert_eq!(place.get(&format!("/s{number}")).body.len(), number * 5);
            assert_eq!(place.get(&format!("/l{number}")).body.len(), 2_001 + number);
            let (bytes, files) = place.site.cached();
            assert!(bytes <= 100_000 && files <= 5);
        }
    }
    let (bytes, files) = place.site.cached();
    assert!(bytes > 90_000 && files == 5, "{bytes} {files}");
}

/// However a path is spelled, its file is kept once; and what is not there is not kept.
#[test]
fn spellings_do_not_fill_the_cache() {
    let mut place = Place::new();
    place.write("abc/def", "x");
    settle();
    place.get("/abc/def");
    let kept = place.site.cached();
    for number in 0..1_000u32 {
        let spelled: String = "abc/def"
            .bytes()
            .enumerate()
            .map(|(at, byte)| match number >> at & 1 {
                1 if byte != b'/' => format!("%{byte:02x}"),
                _ => char::from(byte).to_string(),
            })
            .collect();
        assert_eq!(place.get(&format!("/./{spelled}?{number}")).text(), "x");
        assert_eq!(place.get(&format!("/none{number}")).status, 404);
    }
    assert_eq!(place.site.cached(), kept);
}

#[test]
fn nothing_kept_if_so_set() {
    let mut place = Place::with(|config| {
        config.cache_bytes = 0;
        config.cache_file_bytes = 100;
        config.open_files = 0;
    });
    place.write("small", "s");
    place.write("large", [b'l'; 101]);
    settle();
    for _ in 0..3 {
        assert_eq!(place.get("/small").text(), "s");
        assert_eq!(place.get("/large").body.len(), 101);
        assert_eq!(place.site.cached(), (0, 0));
    }
}

/// A file that is being sent goes on being that file when another takes its name.
#[test]
fn replaced_while_it_is_sent() {
    let mut place = place();
    let bytes = b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n";
    let request = RequestParser::new().parse(bytes, &Limits::default()).unwrap().unwrap();
    let mut out = Vec::new();
    let answer = place.site.answer(&request, &today(), true, &mut out).append_to(&mut out);
    place.write("new", "another");
    fs::rename(place.path("new"), place.path("large")).unwrap();
    assert_eq!(place.get("/large").text(), "another");
    let Body::File(part) = answer.body else { panic!("{answer:?}") };
    let mut bytes = [0; 15];
    rustix::io::pread(&part.file, &mut bytes, part.offset).unwrap();
    assert_eq!(&bytes, b"large 000000000");
}

#[test]
fn tidying_closes_what_is_not_used() {
    let mut place = place();
    place.get("/large");
    place.get("/large");
    assert_eq!(place.site.cached().1, 1);
    assert!(place.site.tidy(), "it was used since");
    let bytes = b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n";
    let request = RequestParser::new().parse(bytes, &Limits::default()).unwrap().unwrap();
    let mut out = Vec::new();
    let answer = place.site.answer(&request, &today(), true, &mut out).append_to(&mut out);
    assert!(place.site.tidy() && place.site.tidy(), "it is being sent");
    drop(answer);
    assert!(!place.site.tidy());
    assert_eq!(place.site.cached().1, 0);
    assert_eq!(place.get("/large").text(), "large 000000000");
}
