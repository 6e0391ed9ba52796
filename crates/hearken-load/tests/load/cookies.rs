//! Cookies per session.

use std::collections::HashMap;
use std::io::Write;
use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use crate::server::scripted::{self, Requests, field};
use hearken_load::{Config, Model, Profile, RequestTemplate, Source, StopSignal, run};
use tempfile::NamedTempFile;

/// Starts a server that sets a new session number on `/login`, and deletes it on `/logout`.
fn start(fields: &'static str) -> (String, Requests) {
    let next = AtomicU64::new(0);
    scripted::start_tcp(move |request| match request.split(' ').nth(1) {
        Some("/login") => {
            let id = next.fetch_add(1, SeqCst);
            format!("Set-Cookie: id={id}; Path=/; HttpOnly\r\nSet-Cookie: x=y; Path=/x\r\n{fields}")
        }
        Some("/logout") => format!("Set-Cookie: id=; Path=/; Max-Age=0\r\n{fields}"),
        _ => fields.to_owned(),
    })
}

fn sessions() -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    // The third and the fourth request are pipelined after the second.
    file.write_all(b"/login\n/a\n /x/b\n /c\n/logout\n/end\n").unwrap();
    file
}

fn config(url: &str, file: &NamedTempFile) -> Config {
    let path = file.path().to_owned();
    Config {
        url: url.to_owned(),
        source: Source::Wsesslog { sessions: None, think: Duration::ZERO, path },
        template: RequestTemplate { cookies: true, ..RequestTemplate::default() },
        requests: NonZeroU64::new(12),
        rate: Profile::constant(500.0),
        connections: NonZeroUsize::new(3),
        timeout: Duration::from_secs(20),
        ..Config::default()
    }
}

/// Checks that each of 12 sessions sent the number that it received, from `/a` to `/logout`.
fn assert_sessions(requests: &Requests) {
    let mut sent: HashMap<String, Vec<String>> = HashMap::new();
    for (_, request) in &*requests.lock().unwrap() {
        let target = request.split(' ').nth(1).unwrap();
        let cookies = field(request, "Cookie").unwrap_or_default();
        let id = match target {
            "/login" | "/end" => {
                assert_eq!(cookies, "", "{target}");
                continue;
            }
            // The cookie with the longer path comes first.
            "/x/b" => cookies.strip_prefix("x=y; ").unwrap_or_else(|| panic!("{cookies}")),
            _ => cookies,
        };
        sent.entry(id.to_owned()).or_default().push(target.to_owned());
    }
    assert_eq!(sent.len(), 12, "{sent:?}");
    for (id, mut targets) in sent {
        targets.sort();
        assert!(id.starts_with("id="), "{id}");
        assert_eq!(targets, ["/a", "/c", "/logout", "/x/b"], "{id}");
    }
}

#[test]
fn sessions_send_the_cookies_that_they_received() {
    let ((url, requests), file) = (start(""), sessions());
    for model in [Model::Sessions, Model::Closed] {
        requests.lock().unwrap().clear();
        let config = Config { model: Some(model), ..config(&url, &file) };
        let report = run(&config, &mut (), &StopSignal::new()).unwrap();
        assert_eq!(report.sessions.completed, 12, "{report}");
        assert_sessions(&requests);
    }
}

#[test]
fn cookies_survive_a_new_connection() {
    let (url, requests) = start("Connection: close\r\n");
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(b"/login\n/a\n/x/b\n/c\n/logout\n/end\n").unwrap();
    let threads = NonZeroUsize::new(2).unwrap();
    let config = Config { threads, ..config(&url, &file) };
    let report = run(&config, &mut (), &StopSignal::new()).unwrap();
    assert_eq!(report.sessions.completed, 12, "{report}");
    assert_eq!(report.connections_opened, 12 * 6, "{report}");
    assert_sessions(&requests);
}

#[test]
fn connections_keep_cookies_of_one_url() {
    let (url, requests) = start("");
    let url = format!("{url}login");
    let template = RequestTemplate { cookies: true, ..RequestTemplate::default() };
    let config = Config {
        source: Source::Url,
        model: Some(Model::Connections),
        requests_per_connection: "3".parse().ok(),
        template,
        ..config(&url, &sessions())
    };
    run(&config, &mut (), &StopSignal::new()).unwrap();
    let requests = requests.lock().unwrap();
    let with = requests.iter().filter(|(_, request)| field(request, "Cookie").is_some()).count();
    assert_eq!((requests.len(), with), (36, 24));
}

#[test]
fn cookies_are_not_sent_by_default() {
    let (url, requests) = start("");
    let (template, file) = (RequestTemplate::default(), sessions());
    run(&Config { template, ..config(&url, &file) }, &mut (), &StopSignal::new()).unwrap();
    let requests = requests.lock().unwrap();
    assert_eq!(requests.len(), 12 * 6);
    assert!(requests.iter().all(|(_, request)| field(request, "Cookie").is_none()));
}

#[test]
fn cookies_without_sessions_are_rejected() {
    let template = RequestTemplate { cookies: true, ..RequestTemplate::default() };
    let headers = vec!["cookie: a=b".to_owned()];
    let field = RequestTemplate { headers, ..template.clone() };
    for (config, reason) in [
        (Config { template, ..Config::default() }, "cookies require several requests"),
        (
            Config { template: field, model: Some(Model::Closed), ..Config::default() },
            "the field is set from the cookies of each session",
        ),
    ] {
        let error = hearken_load::check(&config).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}
