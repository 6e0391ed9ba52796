//! Loads that replay an HTTP Archive.

use std::io::Write;
use std::num::{NonZeroU64, NonZeroUsize};
use std::time::Duration;

use crate::server::scripted;
use hearken_load::{Config, Model, Profile, Report, RequestTemplate, Source, StopSignal, run};
use tempfile::NamedTempFile;

/// Returns an entry that starts after `at` milliseconds and takes `time` milliseconds.
fn entry(at: u32, time: f64, page: &str, request: &str) -> String {
    let (seconds, millis) = (at / 1000, at % 1000);
    let page = if page.is_empty() { String::new() } else { format!(r#""pageref":"{page}","#) };
    format!(
        r#"{{"startedDateTime":"2024-05-01T12:00:{seconds:02}.{millis:03}+02:00","time":{time},{page}
            "request":{{{request},"httpVersion":"h2","cookies":[],"queryString":[]}},
            "response":{{"status":200,"content":{{"text":"{}"}}}},"timings":{{}}}}"#,
        "x".repeat(2000)
    )
}

fn get(url: &str) -> String {
    format!(r#""method":"GET","url":"{url}","headers":[]"#)
}

fn archive(entries: &[String]) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    let entries = entries.join(",");
    write!(
        file,
        "\u{feff}{{\"log\":{{\"version\":\"1.2\",\"pages\":[],\"entries\":[{entries}]}}}}"
    )
    .unwrap();
    file
}

fn config(url: &str, file: &NamedTempFile, sessions: u64) -> Config {
    Config {
        url: url.to_owned(),
        source: Source::Har(file.path().to_owned()),
        requests: NonZeroU64::new(sessions),
        rate: Profile::constant(1000.0),
        timeout: Duration::from_secs(20),
        ..Config::default()
    }
}

fn load(config: &Config) -> Report {
    let report = run(config, &mut (), &StopSignal::new()).unwrap();
    assert_eq!(report.requests.failed, 0, "{report}");
    report
}

fn error(file: &NamedTempFile) -> String {
    let config = config("http://127.0.0.1:9/", file, 1);
    hearken_load::check(&config).unwrap_err().to_string()
}

#[test]
fn each_page_is_a_session() {
    let (url, requests) = scripted::start_tcp(|_| String::new());
    let file = archive(&[
        entry(0, 5.0, "p1", &get(&format!("{url}1"))),
        entry(2000, 5.0, "p2", &get(&format!("{url}3"))),
        // Overlaps the first one, and precedes the other of its page.
        entry(2, 500.0, "p1", &get(&format!("{url}2?q=a#fragment"))),
        entry(3, 5.0, "p1", &get("https://cdn.example/script")),
        entry(4, 5.0, "", &get("data:image/png;base64,AAAA")),
        entry(5000, 5.0, "", &get(&format!("{url}4"))),
    ]);
    let report = load(&config(&url, &file, 6));
    assert_eq!(report.model, Model::Sessions);
    assert_eq!(report.sessions.completed, 6, "{report}");
    let description = "the 3 sessions of ";
    assert!(report.workload.starts_with(description), "{}", report.workload);
    let skipped = ", repeated (2 requests to other servers skipped)";
    assert!(report.workload.ends_with(skipped), "{}", report.workload);
    let mut connections = vec![Vec::new(); 6];
    for (number, request) in &*requests.lock().unwrap() {
        connections[*number as usize].push(request.split(' ').nth(1).unwrap().to_owned());
    }
    connections.sort();
    assert_eq!(
        connections,
        [&["/1", "/2?q=a"][..], &["/1", "/2?q=a"], &["/3"], &["/3"], &["/4"], &["/4"]]
    );
}

#[test]
fn pauses_between_requests_are_kept() {
    let (url, _requests) = scripted::start_tcp(|_| String::new());
    // The second request overlaps the first one, whose reply ends after 50 ms.
    let [first, second, third] = [(0, 50.0), (20, 1.0), (350, 1.0)]
        .map(|(at, time)| entry(at, time, "p", &get(&format!("{url}{at}"))));
    let report = load(&config(&url, &archive(&[first, second, third]), 1));
    assert_eq!(report.requests.replies, 3);
    assert!(report.duration_s >= 0.3, "{report}");
}

#[test]
fn requests_keep_method_fields_and_body() {
    let (url, requests) = scripted::start_tcp(|_| String::new());
    let request = format!(
        r#""method":"POST","url":"{url}form","headers":[
            {{"name":":authority","value":"other"}},{{"name":"host","value":"other"}},
            {{"name":"content-length","value":"3"}},{{"name":"Connection","value":"keep-alive, X-Hop"}},
            {{"name":"x-hop","value":"1"}},{{"name":"Transfer-Encoding","value":"chunked"}},
            {{"name":"accept","value":" text/html "}},{{"name":"user-agent","value":"Browser/1"}},
            {{"name":"Cookie","value":"a=b"}},{{"name":"x-token","value":"recorded"}}],
            "postData":{{"mimeType":"text/plain","text":"grüße"}}"#
    );
    let file = archive(&[entry(0, 1.0, "p", &request)]);
    let template = RequestTemplate {
        headers: vec!["X-Token: given".to_owned()],
        ..RequestTemplate::default()
    };
    load(&Config { template: template.clone(), ..config(&url, &file, 1) });
    let host = url.trim_start_matches("http://").trim_end_matches('/');
    let expected = format!(
        "POST /form HTTP/1.1\r\nHost: {host}\r\naccept: text/html\r\nuser-agent: Browser/1\r\n\
         Cookie: a=b\r\nX-Token: given\r\nContent-Length: 7\r\n\r\ngrüße"
    );
    assert_eq!(requests.lock().unwrap()[0].1, expected);
    // With cookies per session, those of the recording are not sent.
    let template = RequestTemplate { cookies: true, ..template };
    load(&Config { template, ..config(&url, &file, 1) });
    assert_eq!(requests.lock().unwrap()[1].1, expected.replace("Cookie: a=b\r\n", ""));
}

#[test]
fn archives_are_replayed_with_every_model() {
    let (url, requests) = scripted::start_tcp(|_| String::new());
    let pages = ["a", "b"].map(|page| entry(0, 1.0, page, &get(&format!("{url}{page}"))));
    let file = archive(&pages);
    for model in [Model::Requests, Model::Sessions, Model::Closed] {
        let before = requests.lock().unwrap().len();
        let connections = NonZeroUsize::new(2);
        load(&Config { model: Some(model), connections, ..config(&url, &file, 10) });
        assert_eq!(requests.lock().unwrap().len() - before, 10, "{model:?}");
    }
}

#[test]
fn invalid_archives_are_rejected() {
    let ok = entry(0, 1.0, "p", &get("http://127.0.0.1:9/"));
    let time = ok.replace("2024-05-01T12:00:00.000+02:00", "yesterday");
    let field =
        r#""method":"GET","url":"http://127.0.0.1:9/","headers":[{"name":"a b","value":""}]"#;
    let parameters = r#""method":"POST","url":"http://127.0.0.1:9/","headers":[],
        "postData":{"mimeType":"x","params":[{"name":"a","value":"b"}]}"#;
    let other = get("https://Example.com/a");
    for (entries, reason) in [
        (vec![], "no entries"),
        (vec![ok.clone(), time], "entry 2: invalid startedDateTime 'yesterday'"),
        (vec![ok.clone(), ok.replace("method", "verb")], "entry 2: missing field `method`"),
        (vec![ok.clone(), "{}".to_owned()], "entry 2: missing field"),
        (vec![entry(0, 1.0, "p", parameters)], "entry 1: the body is recorded as parameters"),
        (vec![ok.replace("GET", "get")], "entry 1: invalid method"),
        (vec![ok.clone(), entry(0, 1.0, "p", field)], "entry 2: invalid character in the name"),
        (vec![ok.replace(":9/", ":9/ä")], "entry 1: the path contains"),
        (
            vec![entry(0, 1.0, "p", &other), entry(0, 1.0, "p", &other)],
            "no request to the server of the URL; 2 of 2 are to 'https://Example.com'",
        ),
    ] {
        let file = archive(&entries);
        let error = error(&file);
        assert!(error.contains(reason), "{error}");
        assert!(error.contains(file.path().to_str().unwrap()), "{error}");
    }
    let mut text = NamedTempFile::new().unwrap();
    text.write_all(b"GET /").unwrap();
    assert!(error(&text).contains("not an HTTP Archive (HAR 1.2)"));
    let file = archive(&[ok]);
    let think = Some("1s".parse().unwrap());
    let config = Config { think_time: think, ..config("http://127.0.0.1:9/", &file, 1) };
    assert!(hearken_load::check(&config).unwrap_err().to_string().contains("think times"));
}
