//! Files are served when the process is out of descriptors. In a process of its own, as the limit
//! is the process's.

use std::fs::{self, File};

use hearken::io::Body;
use hearken_http::{DateCache, Limits, RequestParser};
use hearken_server::static_files::{Answer, Site, SiteConfig};
use rustix::process::{Resource, Rlimit, setrlimit};

fn get(site: &mut Site, name: &str) -> (Answer<'static>, String) {
    let bytes = format!("GET /{name} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes();
    let request = RequestParser::new().parse(&bytes, &Limits::default()).unwrap().unwrap();
    let mut out = Vec::new();
    site.new_turn();
    let answer =
        site.answer(&request, &DateCache::new(1_800_000_000), true, &mut out).append_to(&mut out);
    (answer, String::from_utf8(out).unwrap())
}

#[test]
fn out_of_descriptors() {
    let place = tempfile::tempdir().unwrap();
    for number in 0..20 {
        fs::write(place.path().join(format!("s{number}")), "small").unwrap();
        fs::write(place.path().join(format!("l{number}")), "larger than ten").unwrap();
    }
    std::thread::sleep(std::time::Duration::from_millis(40));
    let root = place.path().to_owned();
    let config = SiteConfig { root, cache_file_bytes: 10, ..SiteConfig::default() };
    let mut site = Site::open(&config).unwrap();
    let limit = Rlimit { current: Some(64), maximum: Some(64) };
    setrlimit(Resource::Nofile, limit).unwrap();
    let fill = || std::iter::from_fn(|| File::open("/dev/null").ok()).collect::<Vec<File>>();

    // Small files need a descriptor for a moment only: one was held in reserve for it.
    let held = fill();
    for round in 0..3 {
        for number in 0..20 {
            let (answer, out) = get(&mut site, &format!("s{number}"));
            assert!(answer.status == 200 && out.ends_with("\r\n\r\nsmall"), "{round} {out}");
        }
    }
    drop(held);

    // Large files that are kept, but not being sent, are closed for others.
    for number in 0..5 {
        assert_eq!(get(&mut site, &format!("l{number}")).0.status, 200);
    }
    assert_eq!(site.cached().1, 5);
    let mut held = fill();
    let mut sending = Vec::new();
    let refused = loop {
        let (answer, out) = get(&mut site, &format!("l{}", 10 + sending.len()));
        if answer.status != 200 {
            break (answer.status, out);
        }
        assert!(matches!(answer.body, Body::File(_)), "{answer:?}");
        sending.push(answer);
        assert!(sending.len() < 10);
    };
    assert!(sending.len() >= 5, "{}", sending.len());
    assert_eq!(refused.0, 503);
    assert!(refused.1.contains("\r\nRetry-After: 1\r\n"), "{}", refused.1);
    // What is in memory, and what is open, needs none.
    assert_eq!(get(&mut site, "s0").0.status, 200);
    assert_eq!(get(&mut site, "l10").0.status, 200);
    // Once there are descriptors again, all is well.
    held.clear();
    for number in 0..20 {
        assert_eq!(get(&mut site, &format!("l{number}")).0.status, 200);
    }
}
