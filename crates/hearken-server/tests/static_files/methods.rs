//! Methods, types, and what every answer has.

use std::fs;

use hearken_server::static_files::{Site, SiteConfig};

use crate::support::Place;

#[test]
fn get_a_small_file() {
    let mut place = Place::new();
    place.write("a.html", "<p>");
    for _ in 0..3 {
        let got = place.get("/a.html");
        assert_eq!((got.status, got.text().as_str()), (200, "<p>"));
        assert_eq!(got.field("Content-Type"), Some("text/html; charset=utf-8"));
        assert_eq!(got.field("Content-Length"), Some("3"));
        assert_eq!(got.field("Accept-Ranges"), Some("bytes"));
        assert!(got.field("Last-Modified").is_some() && got.field("ETag").is_some());
        assert_eq!(got.field("Server"), None);
        crate::support::settle();
    }
}

#[test]
fn sizes_around_every_bound() {
    let mut place = Place::with(|config| config.cache_file_bytes = 10_000);
    for size in [0, 1, 4095, 4096, 4097, 9_999, 10_000, 10_001, 70_000] {
        let content: Vec<u8> = (0..size).map(|at: usize| (at % 251) as u8).collect();
        place.write("f", &content);
        for pause in [false, true] {
            if pause {
                crate::support::settle();
            }
            for _ in 0..2 {
                let got = place.get("/f");
                assert_eq!(got.status, 200);
                assert!(got.body == content, "{size}");
                assert_eq!(got.from_file, size > 10_000);
                let range = place.ask("GET", "/f", "Range: bytes=-5000\r\n");
                if size > 0 {
                    assert_eq!(range.status, 206);
                    assert!(range.body == content[size.saturating_sub(5000)..], "{size}");
                }
            }
        }
    }
}

#[test]
fn head_is_get_without_the_body() {
    let mut place = Place::with(|config| config.cache_file_bytes = 100);
    place.write("small", "abc");
    place.write("large", [b'x'; 1000]);
    place.write("dir/index.html", "i");
    place.write("empty", "");
    crate::support::settle();
    for target in
        ["/small", "/large", "/empty", "/dir/", "/dir", "/none", "/../x", "/small/", "/%zz"]
    {
        for fields in [
            "",
            "If-None-Match: *\r\n",
            "If-Match: \"no\"\r\n",
            "If-Modified-Since: Thu, 01 Jan 1970 00:00:00 GMT\r\n",
        ] {
            let get = place.ask("GET", target, fields);
            let head = place.ask("HEAD", target, fields);
            assert_eq!(head.status, get.status, "{target} {fields}");
            assert_eq!(without_date(&head.fields), without_date(&get.fields), "{target} {fields}");
        }
    }
    // Ranges are for GET.
    let head = place.ask("HEAD", "/small", "Range: bytes=0-0\r\n");
    assert_eq!((head.status, head.field("Content-Length")), (200, Some("3")));
}

fn without_date(fields: &[(String, String)]) -> Vec<&(String, String)> {
    fields.iter().filter(|(name, _)| name != "Date").collect()
}

#[test]
fn methods_other_than_get() {
    let mut place = Place::new();
    place.write("a", "abc");
    for target in ["/a", "/none", "*"] {
        let got = place.ask("OPTIONS", target, "");
        assert_eq!((got.status, got.field("Allow")), (204, Some("GET, HEAD, OPTIONS")));
    }
    for method in ["POST", "PUT", "DELETE", "PATCH", "TRACE"] {
        let got = place.ask(method, "/a", "");
        assert_eq!((got.status, got.field("Allow")), (405, Some("GET, HEAD, OPTIONS")), "{method}");
        assert_eq!(got.text(), "405 Method Not Allowed\n");
    }
    assert_eq!(place.ask("CONNECT", "a:80", "").status, 405);
    for method in ["get", "PROPFIND", "BREW"] {
        assert_eq!(place.ask(method, "/a", "").status, 501, "{method}");
    }
}

#[test]
fn absolute_targets_are_served_by_their_path() {
    let mut place = Place::new();
    place.write("index.html", "root");
    place.write("a", "abc");
    for (target, text) in [
        ("http://b/a", "abc"),
        ("http://b:80/a?q", "abc"),
        ("https://b/a", "abc"),
        ("http://b", "root"),
        ("http://b?q", "root"),
        ("http://b/", "root"),
    ] {
        let got = place.get(target);
        assert_eq!((got.status, got.text().as_str()), (200, text), "{target}");
    }
}

#[test]
fn connection_is_said_where_it_is_not_the_default() {
    let mut place = Place::new();
    place.write("a", "abc");
    for target in ["/a", "/none"] {
        for _ in 0..2 {
            for (version, keep_alive, said) in [
                ("1.1", true, None),
                ("1.1", false, Some("close")),
                ("1.0", true, Some("keep-alive")),
                ("1.0", false, None),
            ] {
                let request = format!("GET {target} HTTP/{version}\r\nHost: a\r\n\r\n");
                let got = place.send(request.as_bytes(), keep_alive).unwrap();
                assert_eq!(got.field("Connection"), said, "{version} {keep_alive}");
            }
            crate::support::settle();
        }
    }
}

#[test]
fn queries_are_ignored() {
    let mut place = Place::new();
    place.write("a", "abc");
    for target in ["/a?", "/a?x=1", "/a?/../../secret", "/a??"] {
        assert_eq!(place.get(target).text(), "abc");
    }
}

#[test]
fn types_are_by_the_file_not_the_target() {
    let mut place = Place::new();
    place.write("d/index.html", "i");
    place.write("x.json", "{}");
    place.write("noext", "");
    for (target, kind) in [
        ("/d/", "text/html; charset=utf-8"),
        ("/x%2Ejson", "application/json; charset=utf-8"),
        ("/x.json?a=b.html", "application/json; charset=utf-8"),
        ("/noext", "application/octet-stream"),
    ] {
        assert_eq!(place.get(target).field("Content-Type"), Some(kind), "{target}");
    }
}

#[test]
fn what_cannot_be_opened() {
    let place = Place::new();
    place.write("file", "");
    let open = |root: &str, index: &str| {
        let config =
            SiteConfig { root: place.path(root), index: index.to_owned(), ..SiteConfig::default() };
        Site::open(&config).map(drop).map_err(|failed| failed.to_string())
    };
    assert_eq!(open("", "index.html"), Ok(()));
    assert!(open("none", "index.html").unwrap_err().contains("No such file"));
    assert!(open("file", "index.html").unwrap_err().contains("Not a directory"));
    for index in ["", ".", "..", "a/b", "/etc/passwd", "a\0"] {
        assert!(open("", index).unwrap_err().contains("not a file name"));
    }
}

#[test]
fn relative_roots() {
    // The crate's own directory is where its tests run.
    let config = SiteConfig { root: "src".into(), ..SiteConfig::default() };
    let mut site = Site::open(&config).unwrap();
    let bytes = b"GET /lib.rs HTTP/1.0\r\n\r\n";
    let limits = hearken_http::Limits::default();
    let request = hearken_http::RequestParser::new().parse(bytes, &limits).unwrap().unwrap();
    let mut out = Vec::new();
    let answer =
        site.answer(&request, &crate::support::today(), false, &mut out).append_to(&mut out);
    assert_eq!((answer.status, answer.length), (200, fs::metadata("src/lib.rs").unwrap().len()));
}

/// Asks as a user who may not read all.
#[test]
fn no_permission() {
    use std::os::unix::fs::PermissionsExt;
    let mut place = Place::with(|config| config.cache_file_bytes = 100);
    let limit = |path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    place.write("closed", "abc");
    place.write("dir/a", "abc");
    place.write("open", "abc");
    limit(place.outer.path().to_owned(), 0o755);
    limit(place.path(""), 0o755);
    limit(place.path("closed"), 0o200);
    limit(place.path("dir"), 0o600);
    crate::support::settle();
    if rustix::process::getuid().is_root() {
        let nobody = rustix::process::Uid::from_raw(65_534);
        // Of this thread only, which is the harness's for this test.
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
    }
    assert_eq!(place.get("/closed").status, 403);
    assert_eq!(place.get("/dir/a").status, 403);
    assert_eq!(place.get("/open").status, 200);
    assert!(Site::open(&SiteConfig { root: place.path("dir"), ..SiteConfig::default() }).is_err());
}
