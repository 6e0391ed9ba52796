//! Methods, media types, and fields of every response.

use std::fs;

use hearken_server::static_files::{Site, SiteConfig};

use super::support::Fixture;

#[test]
fn serves_a_small_file() {
    let mut fixture = Fixture::new();
    fixture.write("a.html", "<p>");
    for _ in 0..3 {
        let response = fixture.get("/a.html");
        assert_eq!((response.status, response.text().as_str()), (200, "<p>"));
        assert_eq!(response.field("Content-Type"), Some("text/html; charset=utf-8"));
        assert_eq!(response.field("Content-Length"), Some("3"));
        assert_eq!(response.field("Accept-Ranges"), Some("bytes"));
        assert!(response.field("Last-Modified").is_some() && response.field("ETag").is_some());
        assert_eq!(response.field("Server"), None);
        super::support::wait_until_cacheable();
    }
}

#[test]
fn serves_sizes_around_every_limit() {
    let mut fixture = Fixture::with(|config| config.max_cached_file_bytes = 10_000);
    for size in [0, 1, 4095, 4096, 4097, 9_999, 10_000, 10_001, 70_000] {
        let content: Vec<u8> = (0..size).map(|at: usize| (at % 251) as u8).collect();
        fixture.write("f", &content);
        for pause in [false, true] {
            if pause {
                super::support::wait_until_cacheable();
            }
            for _ in 0..2 {
                let response = fixture.get("/f");
                assert_eq!(response.status, 200);
                assert!(response.body == content, "{size}");
                assert_eq!(response.from_file, size > 10_000);
                let range = fixture.request("GET", "/f", "Range: bytes=-5000\r\n");
                if size > 0 {
                    assert_eq!(range.status, 206);
                    assert!(range.body == content[size.saturating_sub(5000)..], "{size}");
                }
            }
        }
    }
}

#[test]
fn head_has_the_fields_of_get() {
    let mut fixture = Fixture::with(|config| config.max_cached_file_bytes = 100);
    fixture.write("small", "abc");
    fixture.write("large", [b'x'; 1000]);
    fixture.write("dir/index.html", "i");
    fixture.write("empty", "");
    super::support::wait_until_cacheable();
    for target in
        ["/small", "/large", "/empty", "/dir/", "/dir", "/none", "/../x", "/small/", "/%zz"]
    {
        for fields in [
            "",
            "If-None-Match: *\r\n",
            "If-Match: \"no\"\r\n",
            "If-Modified-Since: Thu, 01 Jan 1970 00:00:00 GMT\r\n",
        ] {
            let get = fixture.request("GET", target, fields);
            let head = fixture.request("HEAD", target, fields);
            assert_eq!(head.status, get.status, "{target} {fields}");
            assert_eq!(without_date(&head.fields), without_date(&get.fields), "{target} {fields}");
        }
    }
    // Ranges apply to GET only.
    let head = fixture.request("HEAD", "/small", "Range: bytes=0-0\r\n");
    assert_eq!((head.status, head.field("Content-Length")), (200, Some("3")));
}

fn without_date(fields: &[(String, String)]) -> Vec<&(String, String)> {
    fields.iter().filter(|(name, _)| name != "Date").collect()
}

#[test]
fn rejects_methods_other_than_get_and_head() {
    let mut fixture = Fixture::new();
    fixture.write("a", "abc");
    for target in ["/a", "/none", "*"] {
        let response = fixture.request("OPTIONS", target, "");
        assert_eq!((response.status, response.field("Allow")), (204, Some("GET, HEAD, OPTIONS")));
    }
    for method in ["POST", "PUT", "DELETE", "PATCH", "TRACE"] {
        let response = fixture.request(method, "/a", "");
        assert_eq!(
            (response.status, response.field("Allow")),
            (405, Some("GET, HEAD, OPTIONS")),
            "{method}"
        );
        assert_eq!(response.text(), "405 Method Not Allowed\n");
    }
    assert_eq!(fixture.request("CONNECT", "a:80", "").status, 405);
    for method in ["get", "PROPFIND", "BREW"] {
        assert_eq!(fixture.request(method, "/a", "").status, 501, "{method}");
    }
}

#[test]
fn serves_absolute_targets_by_their_path() {
    let mut fixture = Fixture::new();
    fixture.write("index.html", "root");
    fixture.write("a", "abc");
    for (target, text) in [
        ("http://b/a", "abc"),
        ("http://b:80/a?q", "abc"),
        ("https://b/a", "abc"),
        ("http://b", "root"),
        ("http://b?q", "root"),
        ("http://b/", "root"),
    ] {
        let response = fixture.get(target);
        assert_eq!((response.status, response.text().as_str()), (200, text), "{target}");
    }
}

#[test]
fn sends_connection_where_it_is_not_the_default() {
    let mut fixture = Fixture::new();
    fixture.write("a", "abc");
    for target in ["/a", "/none"] {
        for _ in 0..2 {
            for (version, keep_alive, expected) in [
                ("1.1", true, None),
                ("1.1", false, Some("close")),
                ("1.0", true, Some("keep-alive")),
                ("1.0", false, None),
            ] {
                let request = format!("GET {target} HTTP/{version}\r\nHost: a\r\n\r\n");
                let response = fixture.send(request.as_bytes(), keep_alive).unwrap();
                assert_eq!(response.field("Connection"), expected, "{version} {keep_alive}");
            }
            super::support::wait_until_cacheable();
        }
    }
}

#[test]
fn ignores_queries() {
    let mut fixture = Fixture::new();
    fixture.write("a", "abc");
    for target in ["/a?", "/a?x=1", "/a?/../../secret", "/a??"] {
        assert_eq!(fixture.get(target).text(), "abc");
    }
}

#[test]
fn selects_the_type_by_the_file_name() {
    let mut fixture = Fixture::new();
    fixture.write("d/index.html", "i");
    fixture.write("x.json", "{}");
    fixture.write("noext", "");
    for (target, kind) in [
        ("/d/", "text/html; charset=utf-8"),
        ("/x%2Ejson", "application/json; charset=utf-8"),
        ("/x.json?a=b.html", "application/json; charset=utf-8"),
        ("/noext", "application/octet-stream"),
    ] {
        assert_eq!(fixture.get(target).field("Content-Type"), Some(kind), "{target}");
    }
}

#[test]
fn reports_roots_that_cannot_be_opened() {
    let fixture = Fixture::new();
    fixture.write("file", "");
    let open = |root: &str, index: &str| {
        let config = SiteConfig {
            root: fixture.path(root),
            index: index.to_owned(),
            ..SiteConfig::default()
        };
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
fn serves_relative_roots() {
    // Cargo runs tests in the directory of their crate.
    let config = SiteConfig { root: "src".into(), ..SiteConfig::default() };
    let mut site = Site::open(&config).unwrap();
    let bytes = b"GET /lib.rs HTTP/1.0\r\n\r\n";
    let limits = hearken_http::Limits::default();
    let request = hearken_http::RequestParser::new().parse(bytes, &limits).unwrap().unwrap();
    let mut out = Vec::new();
    let answer =
        site.answer(&request, &super::support::today(), false, &mut out).append_to(&mut out);
    assert_eq!((answer.status, answer.length), (200, fs::metadata("src/lib.rs").unwrap().len()));
}

#[test]
fn answers_403_without_permission() {
    // Requests files as a user without permission to read all.
    use std::os::unix::fs::PermissionsExt;
    let mut fixture = Fixture::with(|config| config.max_cached_file_bytes = 100);
    let limit = |path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    fixture.write("closed", "abc");
    fixture.write("dir/a", "abc");
    fixture.write("open", "abc");
    limit(fixture.outer.path().to_owned(), 0o755);
    limit(fixture.path(""), 0o755);
    limit(fixture.path("closed"), 0o200);
    limit(fixture.path("dir"), 0o600);
    super::support::wait_until_cacheable();
    if rustix::process::getuid().is_root() {
        let nobody = rustix::process::Uid::from_raw(65_534);
        // Changes this thread only, which runs only this test.
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
    }
    assert_eq!(fixture.get("/closed").status, 403);
    assert_eq!(fixture.get("/dir/a").status, 403);
    assert_eq!(fixture.get("/open").status, 200);
    assert!(
        Site::open(&SiteConfig { root: fixture.path("dir"), ..SiteConfig::default() }).is_err()
    );
}
