//! From targets to files: nothing outside is ever served.

use std::ffi::OsStr;
use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::time::Instant;

use proptest::prelude::*;
use rustix::fs::{FileType, inotify};

use crate::support::{Place, SECRET, settle};

#[test]
fn directories() {
    let mut place = Place::new();
    place.write("index.html", "root");
    place.write("d/index.html", "dir");
    place.write("d/sub dir/index.html", "sub");
    place.write("empty/x", "x");
    fs::create_dir_all(place.path("odd/index.html")).unwrap();
    for (target, text) in [
        ("/", "root"),
        ("/?q", "root"),
        ("//", "root"),
        ("/.", "root"),
        ("/d/..", "root"),
        ("/d/", "dir"),
        ("/d/.", "dir"),
        ("//d//", "dir"),
        ("/d/sub%20dir/", "sub"),
        ("/d/index.html", "dir"),
    ] {
        for _ in 0..2 {
            let got = place.get(target);
            assert_eq!((got.status, got.text().as_str()), (200, text), "{target}");
        }
    }
    for (target, location) in [
        ("/d", "/d/"),
        ("/d?q=1&r", "/d/?q=1&r"),
        ("/d?", "/d/?"),
        ("/empty", "/empty/"),
        ("/d/sub%20dir", "/d/sub%20dir/"),
        ("/d/sub%20dir?a%20b", "/d/sub%20dir/?a%20b"),
        ("/x/../d", "/d/"),
        ("/%64", "/d/"),
        ("http://elsewhere/d", "/d/"),
        // Not to another host.
        ("//d", "/d/"),
        ("///d", "/d/"),
        ("//d/sub%20dir", "/d/sub%20dir/"),
        ("/.//d", "/d/"),
        ("/x/..//d", "/d/"),
    ] {
        let got = place.get(target);
        assert_eq!((got.status, got.field("Location")), (301, Some(location)), "{target}");
    }
    for target in ["/empty/", "/none/", "/odd/", "/index.html/", "/d/index.html/", "/index.html/."]
    {
        assert_eq!(place.get(target).status, 404, "{target}");
    }
}

#[test]
fn redirects_stay_here_and_inject_nothing() {
    let mut place = Place::new();
    let names: [(&[u8], Option<&str>); 9] = [
        (b"a\r\nX: y", None),
        (b"\\evil.example", None),
        (b"\xff\xfe", Some("/%FF%FE/")),
        (b"http:", Some("/http:/")),
        (b"evil.example", Some("/evil.example/")),
        (b"@evil.example", Some("/@evil.example/")),
        ("\u{2028}\u{e4}".as_bytes(), Some("/%E2%80%A8%C3%A4/")),
        (b"%2f%2fevil", Some("/%252f%252fevil/")),
        (b"a?b#c;\"d\"", Some("/a%3Fb%23c;%22d%22/")),
    ];
    for (name, location) in names {
        fs::create_dir_all(place.path(OsStr::from_bytes(name))).unwrap();
        let spelled: String = name.iter().map(|byte| format!("%{byte:02x}")).collect();
        for before in ["/", "//", "/./", "///", "/x/..//", "http://a//"] {
            let got = place.get(&format!("{before}{spelled}"));
            assert_eq!(got.field("Location"), location, "{before}{spelled}");
            assert_eq!(got.status == 301, location.is_some(), "{before}{spelled}");
            // A query is carried over as it is, even one that looks like something else.
            let got = place.get(&format!("{before}{spelled}?//evil%0d%0aX:\\y"));
            let location = location.map(|location| format!("{location}?//evil%0d%0aX:\\y"));
            assert_eq!(got.field("Location"), location.as_deref());
        }
    }
}

#[test]
fn names_of_any_bytes() {
    let mut place = Place::new();
    let names: [(&[u8], &str, u16); 10] = [
        ("\u{e4}\u{f6}.txt".as_bytes(), "/%C3%A4%c3%b6.txt", 200),
        ("\u{65e5}\u{672c}".as_bytes(), "/%E6%97%A5%E6%9C%AC", 200),
        (b"a b", "/a%20b", 200),
        (b"a%20b", "/a%2520b", 200),
        (b"a+b", "/a+b", 200),
        (b"a?b", "/a%3Fb", 200),
        (b"a#b", "/a%23b", 200),
        (b"\xff", "/%FF", 200),
        (b"a\nX-Injected: 1", "/a%0AX-Injected:%201", 400),
        (b"a\\b", "/a%5Cb", 404),
    ];
    for (name, target, status) in names {
        fs::write(place.path(OsStr::from_bytes(name)), name).unwrap();
        settle();
        for _ in 0..3 {
            let got = place.get(target);
            assert_eq!(got.status, status, "{target}");
            if status == 200 {
                assert_eq!(got.body, name, "{target}");
            }
        }
    }
    // One of them does not stand for the other, in the cache as on the disk.
    assert_eq!(place.get("/a%20b").text(), "a b");
    assert_eq!(place.get("/a%2520b").text(), "a%20b");
    assert_eq!(place.get("/a%252520b").status, 404);
    assert_eq!(place.get("/a|b").status, 404);
}

#[test]
fn dotfiles() {
    let names = [".env", ".git/config", "d/.hidden/x", "d/.h", ".well-known/.x", "d/.well-known/x"];
    for shown in [false, true] {
        let mut place = Place::with(|config| config.dotfiles = shown);
        place.write(".well-known/acme-challenge/token", "known");
        for name in names {
            place.write(name, "dot");
            for target in [format!("/{name}"), format!("/{}", name.replace('.', "%2e"))] {
                assert_eq!(place.get(&target).status, if shown { 200 } else { 404 }, "{target}");
            }
        }
        assert_eq!(place.get("/.git").status, if shown { 301 } else { 404 });
        assert_eq!(place.get("/.well-known/acme-challenge/token").text(), "known");
        assert_eq!(place.get("/x/../.well-known/acme-challenge/token").text(), "known");
        assert_eq!(place.get("/.well-known").field("Location"), Some("/.well-known/"));
    }
}

/// Spellings of the way out; `SECRET` lies beside the root, `inside` in it and in `d`.
const WAYS_OUT: &[&str] = &[
    "/../secret",
    "/../../secret",
    "/..//secret",
    "/./../secret",
    "/d/../../secret",
    "/d/../../../../../../../../secret",
    "/d/./../../secret",
    "/..",
    "/../",
    "/../.",
    "/d/../..",
    "/d/../../",
    "/%2e%2e/secret",
    "/%2E%2E/secret",
    "/.%2e/secret",
    "/%2e./secret",
    "/%2e%2e%2fsecret",
    "/..%2fsecret",
    "/..%2Fsecret",
    "/d%2f..%2f..%2fsecret",
    "/d/%2e%2e/%2e%2e/secret",
    "/%252e%252e/secret",
    "/%252e%252e%252fsecret",
    "/..%252fsecret",
    "/..%5csecret",
    "/..%5Csecret",
    "/..\\secret",
    "/..\\..\\secret",
    "\\..\\secret",
    "/%5c..%5csecret",
    "/d\\..\\..\\secret",
    "/%c0%ae%c0%ae/secret",
    "/%c0%ae%c0%ae%c0%afsecret",
    "/..%c0%afsecret",
    "/%e0%80%ae%e0%80%ae/secret",
    "/%uff0e%uff0e/secret",
    "/..%u2215secret",
    "/..;/secret",
    "/..;a=b/secret",
    "/.../secret",
    "/..../secret",
    "/....//secret",
    "/..%00/secret",
    "/%00/../secret",
    "/inside%00.html",
    "/inside%00",
    "/d/%00",
    "/%00",
    "/../root/../secret",
    "/../root/inside",
    "/d/../../root/inside",
    "//../secret",
    "///../secret",
    "//secret",
    "/./secret",
    "/secret",
    "/%2fetc/passwd",
    "/%2Fetc%2Fpasswd",
    "//etc/passwd",
    "/etc/passwd",
    "/..%09/secret",
    "/%09../secret",
    "/.%20./secret",
    "/..%20/secret",
    "/%20../secret",
    "/.%0a./secret",
    "/..%0d%0a/secret",
    "/%2e%2e%5c%2e%2e%5csecret",
    "/?/../secret",
    "/../secret?x",
    "/../secret%3f",
    "/proc/self/root/etc/passwd",
    "http://a/../secret",
    "http://a/%2e%2e/secret",
    "http://a//../secret",
    "http://../secret",
    "file:///etc/passwd",
    "../secret",
    "secret",
    "*",
    "/%",
    "/%2",
    "/%zz",
    "/%%32%65",
    "/%2%65",
];

#[test]
fn no_way_out() {
    let mut place = Place::new();
    place.write("inside", "inside");
    place.write("d/inside", "inside");
    for target in WAYS_OUT {
        for _ in 0..2 {
            place.site.new_turn();
            let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
            // What is no request is refused before it comes here.
            let Some(got) = place.send(request.as_bytes(), true) else { continue };
            assert!(matches!(got.status, 400 | 404), "{target} {got:?}");
        }
    }
}

#[test]
fn symbolic_links_stay_beneath() {
    let mut place = Place::new();
    place.write("inside", "inside");
    place.write("d/inside", "inside");
    place.write("d/index.html", "index");
    let secret = place.outer.path().join("secret");
    let outer = place.outer.path().to_owned();
    fs::create_dir(outer.join("rootless")).unwrap();
    fs::write(outer.join("rootless/x"), SECRET).unwrap();
    let link = |target: &str, name: &str| symlink(target, place.path(name)).unwrap();
    // These stay inside.
    link("inside", "here");
    link("d/inside", "down");
    link("../inside", "d/up");
    link("../d/../inside", "d/around");
    link("d", "dir");
    link("here", "chain");
    // These do not.
    link(secret.to_str().unwrap(), "absolute");
    link("../secret", "relative");
    link("../../secret", "d/relative");
    link("absolute", "chain2");
    link("chain2", "chain3");
    link(outer.to_str().unwrap(), "outdir");
    link("..", "parent");
    link("../rootless", "prefix");
    link("/", "slash");
    link("/proc/self/root", "proc");
    link("/proc/self/cwd", "cwd");
    link("/proc/self/exe", "exe");
    link("../root/inside", "outandin");
    link(place.path("inside").to_str().unwrap(), "absoluteinside");
    link("loop", "loop");
    link("loop2", "loop1");
    link("loop1", "loop2");
    link("nothing", "dangling");
    settle();
    for target in ["/here", "/down", "/d/up", "/d/around", "/dir/inside", "/chain", "/dir/up"] {
        for _ in 0..2 {
            let got = place.get(target);
            assert_eq!((got.status, got.text().as_str()), (200, "inside"), "{target}");
        }
    }
    assert_eq!(place.get("/dir/").text(), "index");
    assert_eq!(place.get("/dir").field("Location"), Some("/dir/"));
    for target in [
        "/absolute",
        "/relative",
        "/d/relative",
        "/dir/relative",
        "/chain2",
        "/chain3",
        "/outdir",
        "/outdir/",
        "/outdir/secret",
        "/parent/secret",
        "/parent/root/inside",
        "/prefix/x",
        "/slash/etc/passwd",
        "/slash",
        "/proc",
        "/proc/etc/passwd",
        "/cwd/Cargo.toml",
        "/exe",
        "/outandin",
        "/absoluteinside",
        "/loop",
        "/loop1",
        "/loop1/x",
        "/dangling",
        "/dangling/",
    ] {
        assert_eq!(place.get(target).status, 404, "{target}");
    }
}

/// A link that is turned outwards between two requests is noticed at the next.
#[test]
fn links_that_turn() {
    let mut place = Place::new();
    place.write("d/secret", "inside");
    symlink("d", place.path("turn")).unwrap();
    settle();
    assert_eq!(place.get("/turn/secret").text(), "inside");
    assert_eq!(place.get("/turn/secret").text(), "inside");
    for _ in 0..3 {
        fs::remove_file(place.path("turn")).unwrap();
        symlink("..", place.path("turn")).unwrap();
        assert_eq!(place.get("/turn/secret").status, 404);
        fs::remove_file(place.path("turn")).unwrap();
        symlink("d", place.path("turn")).unwrap();
        assert_eq!(place.get("/turn/secret").text(), "inside");
    }
}

#[test]
fn only_regular_files_and_no_waiting() {
    let mut place = Place::new();
    let fifo = rustix::fs::CWD;
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    rustix::fs::mknodat(fifo, place.path("fifo"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let _socket = UnixListener::bind(place.path("socket")).unwrap();
    symlink("/dev/tty", place.path("tty")).unwrap();
    let began = Instant::now();
    for target in ["/fifo", "/socket", "/tty", "/fifo/", "/fifo/x"] {
        for method in ["GET", "HEAD"] {
            assert_eq!(place.ask(method, target, "").status, 404, "{target}");
        }
    }
    assert!(began.elapsed().as_secs() < 1);
}

/// To open a FIFO would release its writer, and to close it would kill the writer with `SIGPIPE`.
#[test]
fn fifos_are_not_opened() {
    let mut place = Place::new();
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    let fifo = place.path("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, mode, 0).unwrap();
    symlink("fifo", place.path("link")).unwrap();
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&watch, &fifo, inotify::WatchFlags::OPEN).unwrap();
    let mut buffer = [MaybeUninit::uninit(); 1024];
    let mut opened = || inotify::Reader::new(&watch, &mut buffer).next().is_ok();
    for target in ["/fifo", "/link"] {
        assert_eq!(place.get(target).status, 404, "{target}");
        assert!(!opened(), "{target}");
    }
    let options = fs::File::options().read(true).write(true).open(&fifo);
    assert!(options.is_ok() && opened(), "the watch sees an open");
}

#[test]
fn long_paths() {
    let mut place = Place::new();
    for target in
        ["/a".repeat(2_500), format!("/{}", "a".repeat(256)), format!("/{}", "a".repeat(8_000))]
    {
        assert_eq!(place.get(&target).status, 404);
    }
    let deep = "d/".repeat(100);
    place.write(format!("{deep}file"), "deep");
    assert_eq!(place.get(&format!("/{deep}file")).text(), "deep");
    assert_eq!(place.get(&format!("/x/../{deep}file")).text(), "deep");
}

fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(vec![
            "/", "..", ".", "%2e", "%2f", "%5c", "\\", "%00", "secret", "root", "inside", "d", "out",
            "%25", "%", "//", "?", ";", ":", "%c0%af", "%ff", "index.html", ".x", "http://a", "*",
        ]).prop_map(str::to_owned),
        1 => "[!-~]{0,4}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is asked, what is outside does not come out: `Got::check` looks at each answer.
    #[test]
    fn nothing_comes_out(targets in prop::collection::vec(prop::collection::vec(piece(), 0..12), 1..4)) {
        thread_local! {
            static PLACE: std::cell::RefCell<Place> = std::cell::RefCell::new({
                let place = Place::new();
                place.write("inside", "inside");
                place.write("d/inside", "inside");
                place.write("d/d/index.html", "inside");
                symlink("..", place.path("out")).unwrap();
                symlink("../..", place.path("d/out")).unwrap();
                settle();
                place
            });
        }
        PLACE.with_borrow_mut(|place| {
            for target in targets {
                place.site.new_turn();
                let request = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", target.concat());
                let Some(got) = place.send(request.as_bytes(), true) else { continue };
                match got.status {
                    200 => prop_assert_eq!(got.text(), "inside"),
                    301 => {
                        let location = got.field("Location").unwrap();
                        prop_assert!(location.starts_with('/') && !location.starts_with("//"));
                        prop_assert!(!location.split('?').next().unwrap().contains(['\\', '#']));
                    }
                    400 | 404 => {}
                    status => prop_assert!(false, "{} {}", status, request),
                }
            }
            Ok(())
        })?;
    }
}
