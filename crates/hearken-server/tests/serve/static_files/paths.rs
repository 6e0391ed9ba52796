//! Mapping of targets to files. Files outside the root are never served.

use std::ffi::OsStr;
use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::time::Instant;

use proptest::prelude::*;
use rustix::fs::{FileType, inotify};

use super::support::{Fixture, SECRET, wait_until_cacheable};

#[test]
fn serves_indexes_and_redirects_directories() {
    let mut fixture = Fixture::new();
    fixture.write("index.html", "root");
    fixture.write("d/index.html", "dir");
    fixture.write("d/sub dir/index.html", "sub");
    fixture.write("empty/x", "x");
    fs::create_dir_all(fixture.path("odd/index.html")).unwrap();
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
            let response = fixture.get(target);
            assert_eq!((response.status, response.text().as_str()), (200, text), "{target}");
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
        // Redirects must not lead to another host.
        ("//d", "/d/"),
        ("///d", "/d/"),
        ("//d/sub%20dir", "/d/sub%20dir/"),
        ("/.//d", "/d/"),
        ("/x/..//d", "/d/"),
    ] {
        let response = fixture.get(target);
        assert_eq!(
            (response.status, response.field("Location")),
            (301, Some(location)),
            "{target}"
        );
    }
    for target in ["/empty/", "/none/", "/odd/", "/index.html/", "/d/index.html/", "/index.html/."]
    {
        assert_eq!(fixture.get(target).status, 404, "{target}");
    }
}

#[test]
fn redirects_stay_on_this_host_and_inject_no_fields() {
    let mut fixture = Fixture::new();
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
        fs::create_dir_all(fixture.path(OsStr::from_bytes(name))).unwrap();
        let spelled: String = name.iter().map(|byte| format!("%{byte:02x}")).collect();
        for before in ["/", "//", "/./", "///", "/x/..//", "http://a//"] {
            let response = fixture.get(&format!("{before}{spelled}"));
            assert_eq!(response.field("Location"), location, "{before}{spelled}");
            assert_eq!(response.status == 301, location.is_some(), "{before}{spelled}");
            // Queries are copied unchanged, even if they look like another host or a field.
            let response = fixture.get(&format!("{before}{spelled}?//evil%0d%0aX:\\y"));
            let location = location.map(|location| format!("{location}?//evil%0d%0aX:\\y"));
            assert_eq!(response.field("Location"), location.as_deref());
        }
    }
}

#[test]
fn serves_names_of_any_bytes() {
    let mut fixture = Fixture::new();
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
        fs::write(fixture.path(OsStr::from_bytes(name)), name).unwrap();
        wait_until_cacheable();
        for _ in 0..3 {
            let response = fixture.get(target);
            assert_eq!(response.status, status, "{target}");
            if status == 200 {
                assert_eq!(response.body, name, "{target}");
            }
        }
    }
    // Encoded and decoded names are distinct, in the cache and on disk.
    assert_eq!(fixture.get("/a%20b").text(), "a b");
    assert_eq!(fixture.get("/a%2520b").text(), "a%20b");
    assert_eq!(fixture.get("/a%252520b").status, 404);
    assert_eq!(fixture.get("/a|b").status, 404);
}

#[test]
fn hides_dotfiles_by_default() {
    let names = [".env", ".git/config", "d/.hidden/x", "d/.h", ".well-known/.x", "d/.well-known/x"];
    for shown in [false, true] {
        let mut fixture = Fixture::with(|config| config.dotfiles = shown);
        fixture.write(".well-known/acme-challenge/token", "known");
        for name in names {
            fixture.write(name, "dot");
            for target in [format!("/{name}"), format!("/{}", name.replace('.', "%2e"))] {
                assert_eq!(fixture.get(&target).status, if shown { 200 } else { 404 }, "{target}");
            }
        }
        assert_eq!(fixture.get("/.git").status, if shown { 301 } else { 404 });
        assert_eq!(fixture.get("/.well-known/acme-challenge/token").text(), "known");
        assert_eq!(fixture.get("/x/../.well-known/acme-challenge/token").text(), "known");
        assert_eq!(fixture.get("/.well-known").field("Location"), Some("/.well-known/"));
    }
}

/// Targets that try to leave the root. `secret` is next to the root, `inside` in the root and in `d`.
const ESCAPES: &[&str] = &[
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
fn targets_cannot_escape_the_root() {
    let mut fixture = Fixture::new();
    fixture.write("inside", "inside");
    fixture.write("d/inside", "inside");
    for target in ESCAPES {
        for _ in 0..2 {
            fixture.site.begin_turn();
            let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
            // The parser rejects malformed requests.
            let Some(response) = fixture.send(request.as_bytes(), true) else { continue };
            assert!(matches!(response.status, 400 | 404), "{target} {response:?}");
        }
    }
}

#[test]
fn symbolic_links_cannot_escape_the_root() {
    let mut fixture = Fixture::new();
    fixture.write("inside", "inside");
    fixture.write("d/inside", "inside");
    fixture.write("d/index.html", "index");
    let secret = fixture.outer.path().join("secret");
    let outer = fixture.outer.path().to_owned();
    fs::create_dir(outer.join("rootless")).unwrap();
    fs::write(outer.join("rootless/x"), SECRET).unwrap();
    let link = |target: &str, name: &str| symlink(target, fixture.path(name)).unwrap();
    // These links stay inside.
    link("inside", "here");
    link("d/inside", "down");
    link("../inside", "d/up");
    link("../d/../inside", "d/around");
    link("d", "dir");
    link("here", "chain");
    // These links lead outside.
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
    link(fixture.path("inside").to_str().unwrap(), "absoluteinside");
    link("loop", "loop");
    link("loop2", "loop1");
    link("loop1", "loop2");
    link("nothing", "dangling");
    wait_until_cacheable();
    for target in ["/here", "/down", "/d/up", "/d/around", "/dir/inside", "/chain", "/dir/up"] {
        for _ in 0..2 {
            let response = fixture.get(target);
            assert_eq!((response.status, response.text().as_str()), (200, "inside"), "{target}");
        }
    }
    assert_eq!(fixture.get("/dir/").text(), "index");
    assert_eq!(fixture.get("/dir").field("Location"), Some("/dir/"));
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
        assert_eq!(fixture.get(target).status, 404, "{target}");
    }
}

#[test]
fn changed_symbolic_links_are_noticed() {
    // A link that is changed to lead outside is noticed at the next request.
    let mut fixture = Fixture::new();
    fixture.write("d/secret", "inside");
    symlink("d", fixture.path("turn")).unwrap();
    wait_until_cacheable();
    assert_eq!(fixture.get("/turn/secret").text(), "inside");
    assert_eq!(fixture.get("/turn/secret").text(), "inside");
    for _ in 0..3 {
        fs::remove_file(fixture.path("turn")).unwrap();
        symlink("..", fixture.path("turn")).unwrap();
        assert_eq!(fixture.get("/turn/secret").status, 404);
        fs::remove_file(fixture.path("turn")).unwrap();
        symlink("d", fixture.path("turn")).unwrap();
        assert_eq!(fixture.get("/turn/secret").text(), "inside");
    }
}

#[test]
fn serves_regular_files_only() {
    let mut fixture = Fixture::new();
    let fifo = rustix::fs::CWD;
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    rustix::fs::mknodat(fifo, fixture.path("fifo"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let _socket = UnixListener::bind(fixture.path("socket")).unwrap();
    symlink("/dev/tty", fixture.path("tty")).unwrap();
    let began = Instant::now();
    for target in ["/fifo", "/socket", "/tty", "/fifo/", "/fifo/x"] {
        for method in ["GET", "HEAD"] {
            assert_eq!(fixture.request(method, target, "").status, 404, "{target}");
        }
    }
    assert!(began.elapsed().as_secs() < 1);
}

#[test]
fn does_not_open_fifos() {
    // Opening a FIFO would unblock its writer, and closing it would kill the writer with `SIGPIPE`.
    let mut fixture = Fixture::new();
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    let fifo = fixture.path("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, mode, 0).unwrap();
    symlink("fifo", fixture.path("link")).unwrap();
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&watch, &fifo, inotify::WatchFlags::OPEN).unwrap();
    let mut buffer = [MaybeUninit::uninit(); 1024];
    let mut opened = || inotify::Reader::new(&watch, &mut buffer).next().is_ok();
    for target in ["/fifo", "/link"] {
        assert_eq!(fixture.get(target).status, 404, "{target}");
        assert!(!opened(), "{target}");
    }
    let options = fs::File::options().read(true).write(true).open(&fifo);
    assert!(options.is_ok() && opened(), "the watch sees an open");
}

#[test]
fn accepts_long_paths() {
    let mut fixture = Fixture::new();
    for target in
        ["/a".repeat(2_500), format!("/{}", "a".repeat(256)), format!("/{}", "a".repeat(8_000))]
    {
        assert_eq!(fixture.get(&target).status, 404);
    }
    let deep = "d/".repeat(100);
    fixture.write(format!("{deep}file"), "deep");
    assert_eq!(fixture.get(&format!("/{deep}file")).text(), "deep");
    assert_eq!(fixture.get(&format!("/x/../{deep}file")).text(), "deep");
}

fn segment() -> impl Strategy<Value = String> {
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

    #[test]
    fn random_targets_cannot_escape_the_root(targets in prop::collection::vec(prop::collection::vec(segment(), 0..12), 1..4)) {
        // `Response::check` looks for the secret in each response.
        thread_local! {
            static PLACE: std::cell::RefCell<Fixture> = std::cell::RefCell::new({
                let fixture = Fixture::new();
                fixture.write("inside", "inside");
                fixture.write("d/inside", "inside");
                fixture.write("d/d/index.html", "inside");
                symlink("..", fixture.path("out")).unwrap();
                symlink("../..", fixture.path("d/out")).unwrap();
                wait_until_cacheable();
                fixture
            });
        }
        PLACE.with_borrow_mut(|fixture| {
            for target in targets {
                fixture.site.begin_turn();
                let request = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", target.concat());
                let Some(response) = fixture.send(request.as_bytes(), true) else { continue };
                match response.status {
                    200 => prop_assert_eq!(response.text(), "inside"),
                    301 => {
                        let location = response.field("Location").unwrap();
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
