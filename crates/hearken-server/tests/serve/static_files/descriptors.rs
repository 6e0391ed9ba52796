//! Files at the descriptor limit, in a process of its own because the limit applies to the process.

use std::fs::{self, File};

use super::support::wait_until_cacheable;
use crate::common::process::run_alone;
use hearken::io::Body;
use hearken_http::{DateCache, Limits, RequestParser};
use hearken_server::static_files::{Answer, Site, SiteConfig};
use rustix::process::{Resource, Rlimit, setrlimit};

fn get(site: &mut Site, name: &str) -> (Answer<'static>, String) {
    let bytes = format!("GET /{name} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes();
    let request = RequestParser::new().parse(&bytes, &Limits::default()).unwrap().unwrap();
    let mut out = Vec::new();
    site.begin_turn();
    let answer =
        site.answer(&request, &DateCache::new(1_800_000_000), true, &mut out).append_to(&mut out);
    (answer, String::from_utf8(out).unwrap())
}

#[test]
fn serves_files_at_the_descriptor_limit() {
    if !run_alone("static_files::descriptors::serves_files_at_the_descriptor_limit") {
        return;
    }
    let fixture = tempfile::tempdir().unwrap();
    for number in 0..20 {
        fs::write(fixture.path().join(format!("s{number}")), "small").unwrap();
        fs::write(fixture.path().join(format!("l{number}")), "larger than ten").unwrap();
    }
    wait_until_cacheable();
    let root = fixture.path().to_owned();
    let config = SiteConfig { root, max_cached_file_bytes: 10, ..SiteConfig::default() };
    let mut site = Site::open(&config).unwrap();
    let limit = Rlimit { current: Some(64), maximum: Some(64) };
    setrlimit(Resource::Nofile, limit).unwrap();
    let fill = || std::iter::from_fn(|| File::open("/dev/null").ok()).collect::<Vec<File>>();

    // Small files need a descriptor only while they are read. One is reserved for this.
    let held = fill();
    for round in 0..3 {
        for number in 0..20 {
            let (answer, out) = get(&mut site, &format!("s{number}"));
            assert!(answer.status == 200 && out.ends_with("\r\n\r\nsmall"), "{round} {out}");
        }
    }
    drop(held);

    // Cached large files that are not being sent are closed for others.
    for number in 0..5 {
        assert_eq!(get(&mut site, &format!("l{number}")).0.status, 200);
    }
    assert_eq!(site.cache_usage().1, 5);
    let mut held = fill();
    let mut sending = Vec::new();
    let rejected = loop {
        let (answer, out) = get(&mut site, &format!("l{}", 10 + sending.len()));
        if answer.status != 200 {
            break (answer.status, out);
        }
        assert!(matches!(answer.body, Body::File(_)), "{answer:?}");
        sending.push(answer);
        assert!(sending.len() < 10);
    };
    assert!(sending.len() >= 5, "{}", sending.len());
    assert_eq!(rejected.0, 503);
    assert!(rejected.1.contains("\r\nRetry-After: 1\r\n"), "{}", rejected.1);
    // Files in memory and open files need no descriptor.
    assert_eq!(get(&mut site, "s0").0.status, 200);
    assert_eq!(get(&mut site, "l10").0.status, 200);
    // Once descriptors are free, all files are served.
    held.clear();
    for number in 0..20 {
        assert_eq!(get(&mut site, &format!("l{number}")).0.status, 200);
    }
}
