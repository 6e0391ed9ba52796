//! `hearken proxy` as its user meets it: options, the file, and what is said of what is wrong in them.

mod program;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use program::{Running, hearken, refused, run, serve, site, text};
use proptest::collection::vec;
use proptest::prelude::*;
use rustix::process::Signal;
use tempfile::TempDir;

fn docs(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

/// What `--check` says of a file with this content, which is called `p.toml`.
fn check(content: impl AsRef<[u8]>, more: &[&str]) -> Output {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("p.toml"), content).unwrap();
    let args = [&["proxy", "--config", "p.toml", "--check"], more].concat();
    hearken(&args).current_dir(dir.path()).output().unwrap()
}

/// Is right, and is said to be this.
#[track_caller]
fn right(content: &str, more: &[&str], says: &str) {
    let output = check(content, more);
    assert_eq!(output.status.code(), Some(0), "{content}: {}", text(&output.stderr));
    assert_eq!(text(&output.stdout), format!("p.toml: the configuration is right: {says}\n"));
    assert!(output.stderr.is_empty());
}

/// Is wrong, in these places.
#[track_caller]
fn wrong(content: impl AsRef<[u8]>, more: &[&str], says: &[&str]) {
    let output = check(content, more);
    let said = text(&output.stderr);
    let lines: Vec<_> = said.lines().map(|line| line.strip_prefix("hearken: ").unwrap()).collect();
    assert_eq!(lines, says);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(output.stdout.is_empty());
}

/// A file with a server, and these lines before it.
fn with(lines: &str) -> String {
    format!("{lines}\n[[upstreams.server]]\nto = \"a:1\"\n")
}

#[test]
fn files_that_are_right() {
    let server = "[[upstreams.server]]\nto = \"http://a:9000\"\n";
    let two =
        format!("{server}\n[[upstreams.server]]\nto = 'unix:/run/b'\nweight = 3\nbackup = true\n");
    let usual = "listening on 127.0.0.1:8080";
    right(server, &[], &format!("reverse proxy to 1 server, round-robin, {usual}"));
    right(&two, &[], &format!("reverse proxy to 2 servers, round-robin, {usual}"));
    right("[forward]", &[], &format!("forward proxy, {usual}"));
    right("\u{feff}forward = {}\r\n", &[], &format!("forward proxy, {usual}"));
    right(
        &format!(
            "listen = \"[::1]:81\"\nupstreams.policy = 'hash:field=X-Key'\n{}",
            server
                .replace("[[", "# [[")
                .replace("to =", "upstreams.server = [{ to =")
                .replace("9000\"", "9000\" }]")
        ),
        &[],
        "reverse proxy to 1 server, hash:field=X-Key, listening on [::1]:81",
    );
    // The command line wins.
    right(
        &two,
        &["--to", "c:1", "--listen", "127.0.0.1:0", "--policy", "random-two"],
        "reverse proxy to 1 server, random-two, listening on 127.0.0.1:0",
    );
    right(&two, &["--forward"], &format!("forward proxy, {usual}"));
    right(
        "[forward]\nallow = ['.a']",
        &["--to", "a:1"],
        &format!("reverse proxy to 1 server, round-robin, {usual}"),
    );
    // Numbers as they are written.
    right(
        &with("workers = 0x2\nlimits.head = 16_384\ntimeouts = { head = 0.5, body = 3 }"),
        &[],
        &format!("reverse proxy to 1 server, round-robin, {usual}"),
    );
}

#[test]
fn files_that_are_wrong() {
    let no_server = "no server; write [[upstreams.server]] and to = \"http://HOST:PORT\" below it, or [forward]";
    wrong("", &[], &[&format!("p.toml: {no_server}")]);
    wrong("workers = 2\n", &[], &[&format!("p.toml: {no_server}")]);
    for (lines, says) in [
        // Not TOML.
        ("a = \n", "1:5: no TOML: string values must be quoted, expected literal string"),
        ("workers = 1\nworkers = 2\n", "2:1: no TOML: duplicate key"),
        ("[timeouts\n", "1:10: no TOML: unclosed table, expected `]`"),
        // Names.
        ("lisen = \"a\"", "1:1: unknown key \"lisen\"; did you mean \"listen\"?"),
        ("time-outs = 3", "1:1: unknown key \"time-outs\"; did you mean \"timeouts\"?"),
        ("[time-outs]", "1:2: unknown key \"time-outs\"; did you mean \"timeouts\"?"),
        ("[timeouts]\nhaed = 3", "2:1: unknown key \"haed\" in [timeouts]; did you mean \"head\"?"),
        ("[log]\nqwx = 3", "2:1: unknown key \"qwx\" in [log]; known are file, format"),
        (
            "head-timeout = 3",
            "1:1: unknown key \"head-timeout\"; option --head-timeout is \"head\" in [timeouts] here",
        ),
        (
            "[log]\nallow = []",
            "2:1: unknown key \"allow\" in [log]; did you mean \"allow\" in [forward]?",
        ),
        // Types.
        ("log = 3", "1:7: \"log\" is a table, not a number; write [log]"),
        ("forward = true", "1:11: \"forward\" is a table, not true or false; write [forward]"),
        ("splice = \"no\"", "1:10: \"splice\" is not text; write true or false"),
        (
            "workers = true",
            "1:11: \"workers\" cannot be true or false; write for example workers = 1",
        ),
        ("workers = [1]", "1:11: \"workers\" has one value, not an array"),
        (
            "listen = 2030-01-31",
            "1:10: \"listen\" cannot be a date; write for example listen = \"127.0.0.1:8080\"",
        ),
        (
            "[forward]\nallow = \"a\"",
            "2:9: \"allow\" is an array, not text; write [\".example.org\", \"10.1.0.0/16\"]",
        ),
        // Values.
        ("  workers = 0", "1:13: \"workers\": it is 1 at least; write for example workers = 1"),
        (
            "workers = -1",
            "1:11: \"workers\": not a whole number that is not negative; write for example workers = 1",
        ),
        (
            "workers = 99999999999999999999",
            "1:11: \"workers\": too large a number; write for example workers = 1",
        ),
        (
            "# é\nlog = { file = 'é', format = 'xml' }",
            "2:30: \"format\": unknown value; write one of combined, json",
        ),
        ("[timeouts]\nhead = 0", "2:8: \"head\": no time at all; write for example head = \"10s\""),
        (
            "[timeouts]\nhead = '5x'",
            "2:8: \"head\": unknown unit \"x\" (known are ms, s, m, h); write for example head = \"10s\"",
        ),
        (
            "[timeouts]\nwhole = nan",
            "2:9: \"whole\": \"nan\" is not a time; write for example whole = \"0s\"",
        ),
        ("[limits]\nhead = 12", "2:8: \"head\": 12 is out of range; write 1k to 1M"),
        (
            "[limits]\nbody = '1x'",
            "2:8: \"body\": \"1x\" is not a size; write bytes, or as 16k, 8M, 1G",
        ),
        (
            "[fields]\nvia = ''",
            "2:7: \"via\": \"\" is no name for Via; write letters and digits, or none",
        ),
        (
            "[fields]\nvia = \"\\u0000\"",
            "2:7: \"via\" has a NUL in it; write for example via = \"edge-1\"",
        ),
        (
            "[health]\npassive = 3",
            "2:11: \"passive\": \"3\" is not FAILURES/DURATION; write as 3/10s, or off",
        ),
        (
            "[health]\npath = 'x'",
            "2:8: \"path\": \"x\" is no path; it begins with a slash, as /healthz",
        ),
        // What does not go together.
        (
            "[health]\nrise = 2",
            "2:8: nothing is asked of servers; write path = \"/healthz\" beside it",
        ),
        (
            "[limits]\ntarget = '17k'",
            "2:10: a target of 17408 bytes is in no head of 16384; write no more than that",
        ),
        (
            "[admin]\nlisten = '0.0.0.0:8080'",
            "2:10: the proxy listens on 127.0.0.1:8080; write another port",
        ),
        (
            "[forward]\nallow = ['a']",
            "1:2: a proxy is a forward one, or has servers to which everything goes; leave one out",
        ),
        ("[log]\nfile = 'no/such'", "2:8: there is no directory no; make it, or write another"),
        ("[log]\nfile = '/'", "2:8: / is a directory; write the name of a file in it"),
        (
            "[[upstreams.server]]\nto = 'http://A'\n[[upstreams.server]]\nto='a:80'",
            "4:4: server 1 is the same; leave one out, or give it a weight",
        ),
        (
            "[[upstreams.server]]\nto = '127.0.0.1:8080'",
            "2:6: this proxy itself listens on 127.0.0.1:8080; write another port",
        ),
    ] {
        wrong(with(lines), &[], &[&format!("p.toml:{says}")]);
    }
    let unknown = check(with("events = 'kqueue'"), &[]);
    let said = text(&unknown.stderr);
    assert!(
        said.starts_with("hearken: p.toml:1:10: unknown mechanism \"kqueue\"; known are: auto"),
        "{said}"
    );
    let keep = check(with("upstreams.keep = 999999999999"), &[]);
    let said = text(&keep.stderr);
    assert!(
        said.starts_with("hearken: p.toml:1:18: 999999999999 connections are more than"),
        "{said}"
    );
    wrong(
        "[forward]\n[upstreams]\nqueue = 3\n[health]\npassive = 'off'",
        &[],
        &[
            "p.toml:3:9: this is for a proxy with servers of its own, and not for a forward one; leave it out",
            "p.toml:5:11: this is for a proxy with servers of its own, and not for a forward one; leave it out",
        ],
    );
}

#[test]
fn servers_that_are_wrong() {
    let to = |to: &str| format!("[[upstreams.server]]\nto = \"{to}\"\n");
    let long = format!("unix:/{}", "x".repeat(107));
    for (address, says) in [
        ("https://a", "TLS to servers is not supported; write http://, to a port without TLS"),
        ("ftp://a", "scheme \"ftp\" is not supported; write http:// or unix:"),
        ("http://a/b", "requests keep their own paths; leave \"/b\" out"),
        ("http://a?b", "requests keep their own queries; leave \"?b\" out"),
        ("http://u:p@a", "a user's name is not sent to servers; write http://HOST:PORT"),
        ("http://", "the host is missing; write http://HOST:PORT"),
        ("http://:80", "the host is missing; write http://HOST:PORT"),
        ("http://a:0", "\"0\" is no port, which is 1 to 65535; write http://HOST:PORT"),
        ("http://a:+1", "\"+1\" is no port, which is 1 to 65535; write http://HOST:PORT"),
        ("http://a:65536", "\"65536\" is no port, which is 1 to 65535; write http://HOST:PORT"),
        (
            "http://::1",
            "\"::1\" has several colons; an IPv6 address stands in brackets; write http://HOST:PORT",
        ),
        ("http://[::1", "a bracket is not closed; write http://HOST:PORT"),
        ("http://[::x]", "\"::x\" is no IPv6 address; write http://HOST:PORT"),
        (
            "http://[fe80::1%eth0]",
            "interface \"eth0\" is no number; write its index (ip link); write http://HOST:PORT",
        ),
        (
            "http://256.1.1.1",
            "\"256.1.1.1\" is neither an IPv4 address nor a name; write http://HOST:PORT",
        ),
        ("http://a..b", "\"a..b\" is no host's name; write http://HOST:PORT"),
        ("http://a b", "' ' cannot be in a host's name; write http://HOST:PORT"),
        ("a", "\"a\" has no port; write http://HOST:PORT or unix:/PATH"),
        ("a:1/x", "\"/x\" has no place in HOST:PORT; write http://HOST:PORT"),
        ("unix:x", "\"x\" is no absolute path; write unix:/PATH"),
        ("unix:/x/", "that is no path of a socket; write unix:/PATH"),
        (long.as_str(), "a socket's path has 107 bytes at most"),
        ("a:1;weigth=2", "unknown parameter \"weigth=2\"; known are weight=N and backup"),
        ("a:1;weight=0", "\"0\" is no weight; write 1 to 65535"),
        ("a:1;backup;backup", "backup is given twice"),
    ] {
        wrong(to(address), &[], &[&format!("p.toml:2:6: {says}")]);
        refused(&["proxy", "--check", "--to", address], says);
    }
    let two = "[[upstreams.server]]\nweight = 0\nbakup = true\n[[upstreams.server]]\nto = 3\n\
               [[upstreams.server]]\nto = 'a:1;weight=2'\nweight = 2\n";
    // All of it at once.
    wrong(
        two,
        &[],
        &[
            "p.toml:1:1: a server without \"to\"; write to = \"http://HOST:PORT\"",
            "p.toml:2:10: \"0\" is no weight; write 1 to 65535",
            "p.toml:3:1: unknown key \"bakup\" of a server; did you mean \"backup\"?",
            "p.toml:4:1: a server without \"to\"; write to = \"http://HOST:PORT\"",
            "p.toml:5:6: \"to\" is not a number; write \"http://HOST:PORT\"",
            "p.toml:7:6: weight is given twice",
        ],
    );
    wrong(
        "[upstreams]\nserver = 'a:1'",
        &[],
        &["p.toml:2:10: a server is a table, not text; write [[upstreams.server]]"],
    );
    wrong(
        "[upstreams.server]\nto = 'a:1'",
        &[],
        &["p.toml:1:12: there may be several servers; write [[upstreams.server]]"],
    );
    right(
        "[[upstreams.server]]\nto = 'http://[::1]:81/'\n[[upstreams.server]]\nto = 'HTTP://_a.b-c.'",
        &[],
        "reverse proxy to 2 servers, round-robin, listening on 127.0.0.1:8080",
    );
}

#[test]
fn files_that_cannot_be_read() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().display().to_string();
    let cannot = |path: &str, says: &str| {
        refused(&["proxy", "--check", "--config", path], &format!("hearken: {path}: {says}"));
    };
    cannot("/no/such", "cannot be read: No such file");
    cannot(&path, "cannot be read: Is a directory");
    cannot("/dev/zero", "longer than 1 MiB, which no configuration is");
    wrong(b"workers = 2\nx = '\xff'", &[], &["p.toml:2:6: this is not UTF-8; write it as text"]);
    let mut child = hearken(&["proxy", "--check", "--config", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"x = 1").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(text(&output.stderr).starts_with("hearken: stdin:1:1: unknown key"));
}

#[test]
fn options_that_are_wrong() {
    refused(
        &["proxy"],
        "it is not said where requests go; write --to http://HOST:PORT, --forward or --config FILE",
    );
    refused(&["proxy", "--to", "a:1", "--to", "http://A:1"], "--to: server 1 is the same");
    refused(&["proxy", "--forward", "--to", "a:1"], "--forward: a proxy is a forward one, or");
    refused(
        &["proxy", "--forward", "--policy", "random-two"],
        "--policy: this is for a proxy with servers",
    );
    refused(&["proxy", "--to", "a:1", "--allow", "a"], "--allow: this is for a forward proxy");
    refused(&["proxy", "--to", "a:1", "--check-rise", "2"], "--check-rise: nothing is asked");
    refused(
        &["proxy", "--to", "a:1", "--admin", "127.0.0.1:8080"],
        "--admin: the proxy listens on",
    );
    for (option, value) in [
        ("to", ""),
        ("allow", "http://a"),
        ("allow", "a:1"),
        ("allow", "10.0.0.1/8"),
        ("allow", "10.0.0.0/33"),
        ("deny", "10.0.0.0/x"),
        ("deny", "."),
        ("connect-port", "0"),
        ("connect-port", "65536"),
        ("listen", "8080"),
        ("listen", "localhost:80"),
        ("proxy-protocol", "v1"),
        ("proxy-protocol", "10.0.0.0/33"),
        ("proxy-protocol", "10.0.0.0/8,a"),
        ("half-close", "no"),
        ("policy", "fastest"),
        ("policy", "hash:field=a b"),
        ("policy", "hash:field="),
        ("keep", "-1"),
        ("max-requests", "0"),
        ("queue", "x"),
        ("tries", "0"),
        ("slow-start", "x"),
        ("resolve-every", "-1s"),
        ("send-proxy-protocol", "v3"),
        ("passive", "3"),
        ("passive", "0/1s"),
        ("passive", "3/0"),
        ("check-path", "x"),
        ("check-path", "/a b"),
        ("check-path", "/a#b"),
        ("check-host", "a b"),
        ("check-every", "0"),
        ("check-timeout", "0"),
        ("check-fall", "0"),
        ("check-rise", "0"),
        ("check-status", "100"),
        ("check-status", "600"),
        ("min-rate", "-1"),
        ("max-head", "1023"),
        ("max-head", "2M"),
        ("max-fields", "0"),
        ("max-fields", "1001"),
        ("max-target", "63"),
        ("max-body", "1q"),
        ("head-timeout", "0"),
        ("body-timeout", "0"),
        ("upload-timeout", "0"),
        ("idle-timeout", "0"),
        ("send-timeout", "0"),
        ("queue-timeout", "0"),
        ("connect-timeout", "0"),
        ("server-send-timeout", "0"),
        ("response-timeout", "0"),
        ("response-body-timeout", "0"),
        ("whole-timeout", "x"),
        ("tunnel-timeout", "0"),
        ("keep-timeout", "0"),
        ("grace", "x"),
        ("via", ""),
        ("via", "a b"),
        ("x-forwarded", "set"),
        ("forwarded", "set"),
        ("host", "mine"),
        ("access-log", ""),
        ("log-format", "xml"),
        ("admin", "9090"),
        ("events", "kqueue"),
        ("rt-queue", "x"),
        ("workers", "0"),
        ("accept-limit", "0"),
        ("defer-accept", "x"),
        ("io", "x"),
        ("interest", "x"),
        ("no-splice", "maybe"),
        ("meter-waits", "1"),
        ("max-connections", "0"),
    ] {
        refused(
            &["proxy", "--check", "--to=a:1", &format!("--{option}={value}")],
            &format!("--{option}"),
        );
    }
}

#[test]
fn rules_that_are_wrong_say_what_is_right() {
    for (rule, says) in [
        ("10.0.0.1/8", "10.0.0.1 has more than 8 bits; the network is 10.0.0.0/8"),
        ("::1/64", "::1 has more than 64 bits; the network is ::/64"),
        ("10.0.0.0/33", "\"10.0.0.0\" has 0 to 32 bits"),
        ("a/8", "\"a\" is no address of a network"),
        (
            "a:443",
            "\"a:443\" is no address, and rules have no port; write ADDRESS, NETWORK/BITS, NAME or .DOMAIN",
        ),
        ("*.a", "'*' cannot be in a host's name; write ADDRESS, NETWORK/BITS, NAME or .DOMAIN"),
    ] {
        refused(&["proxy", "--check", "--forward", "--allow", rule], says);
        refused(&["proxy", "--check", "--forward", "--deny", rule], says);
    }
    for rule in [
        "10.0.0.0/8",
        "0.0.0.0/0",
        "::/0",
        "::1",
        "[::1]",
        "127.0.0.1",
        "A.example",
        ".example.org.",
    ] {
        let output = run(&["proxy", "--check", "--forward", "--allow", rule]);
        assert!(output.status.success(), "{rule}: {}", text(&output.stderr));
    }
}

#[test]
fn what_is_printed_is_right_and_the_same() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("printed.toml");
    let path = path.to_str().unwrap();
    for args in [
        &["--to", "http://a:9000;weight=3", "--to", "unix:/run/b;backup", "--check-path", "/well"]
            [..],
        &[
            "--forward",
            "--deny",
            ".a",
            "--connect-port",
            "443",
            "--no-splice",
            "--access-log",
            "log",
        ],
    ] {
        let printed = run(&[&["proxy", "--print-config"], args].concat());
        assert!(printed.status.success(), "{}", text(&printed.stderr));
        fs::write(path, &printed.stdout).unwrap();
        let again = run(&["proxy", "--config", path, "--print-config"]);
        assert_eq!(text(&again.stdout), text(&printed.stdout));
        assert!(run(&["proxy", "--config", path, "--check"]).status.success());
    }
}

#[test]
fn help_and_guide_have_the_same_options() {
    let help = run(&["proxy", "--help"]);
    let help = text(&help.stdout);
    let guide = fs::read_to_string(docs("proxy.md")).unwrap();
    let flags = help.lines().filter_map(|line| line.trim_start().strip_prefix("--"));
    let mut count = 0;
    for flag in flags.filter_map(|line| line.split([' ', '[', '=']).next()) {
        assert!(guide.contains(&format!("--{flag}")), "docs/proxy.md lacks --{flag}");
        count += 1;
    }
    assert!(count > 50, "{help}");
    for heading in [
        "Where requests go",
        "Client connections",
        "Balancing and health",
        "Limits",
        "Timeouts",
        "Fields",
        "Logs and metrics",
        "Events and experiments",
    ] {
        assert!(help.contains(&format!("\n{heading}:\n")), "{heading}");
    }
}

#[test]
fn the_guides_files_are_right() {
    let example = run(&["proxy", "--check", "--config", docs("proxy.toml").to_str().unwrap()]);
    assert!(example.status.success(), "{}", text(&example.stderr));
    let guide = fs::read_to_string(docs("proxy.md")).unwrap();
    let files: Vec<_> = guide.split("```toml\n").skip(1).collect();
    assert!(files.len() > 1);
    for file in files {
        let output = check(file.split("```").next().unwrap(), &[]);
        assert!(output.status.success(), "{file}: {}", text(&output.stderr));
    }
}

fn get(addr: &str) -> String {
    let mut client = TcpStream::connect(addr).unwrap();
    client.write_all(b"GET /1b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn it_starts_as_the_file_says_and_stops() {
    let dir = site();
    let (_server, url) = serve(dir.path(), &[]);
    let path = dir.path().join("proxy.toml");
    let file = format!(
        "listen = '127.0.0.1:0'\nworkers = 2\n[[upstreams.server]]\nto = '{url}'\n\
         [fields]\nvia = 'edge'\n[log]\nfile = 'log'\n[admin]\nlisten = '127.0.0.1:0'\n"
    );
    fs::write(&path, file).unwrap();
    let args = ["proxy", "--config", path.to_str().unwrap(), "--workers", "1", "--events", "poll"];
    let mut proxy = Running::start(&args);
    let line = proxy.line();
    let addr = line.strip_prefix("proxying on http://").and_then(|rest| rest.split_once(' '));
    let (addr, rest) = addr.unwrap_or_else(|| panic!("{line:?}"));
    assert!(
        rest.starts_with("to 1 server (poll, 1 worker, ") && rest.ends_with(" connections)\n"),
        "{line}"
    );
    let line = proxy.line();
    assert!(
        line.starts_with("metrics on http://127.0.0.1:") && line.ends_with("/metrics\n"),
        "{line}"
    );
    let answer = get(addr);
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nx"), "{answer}");
    assert!(answer.contains("\r\nVia: 1.1 edge\r\n"), "{answer}");
    proxy.signal(Signal::TERM);
    assert_eq!(proxy.child.wait().unwrap().code(), Some(0));
    // Beside the file that names it.
    let log = fs::read_to_string(dir.path().join("log")).unwrap();
    assert!(log.contains("\"GET /1b HTTP/1.1\" 200 "), "{log}");
}

#[test]
fn proxies_with_default_names_can_be_chained() {
    let dir = site();
    let (_server, mut url) = serve(dir.path(), &[]);
    let mut proxies = Vec::new();
    for _ in 0..2 {
        let mut proxy = Running::start(&["proxy", "--listen", "127.0.0.1:0", "--to", &url]);
        let line = proxy.line();
        url = line.split(' ').find(|word| word.starts_with("http://")).expect(&line).to_owned();
        proxies.push(proxy);
    }
    let answer = get(url.strip_prefix("http://").unwrap());
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let names: Vec<_> = answer.split("1.1 hearken-").skip(1).map(|name| &name[..8]).collect();
    assert!(names.len() == 2 && names[0] != names[1], "{answer}");
}

#[test]
fn what_cannot_be_started_is_refused() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let holder = TcpListener::bind(&taken);
    refused(&["proxy", "--to", "127.0.0.1:1", "--listen", &taken], &taken);
    refused(
        &["proxy", "--to", "127.0.0.1:1", "--listen", "127.0.0.1:0", "--admin", &taken],
        &taken,
    );
    drop(holder);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn any_bytes_are_refused_with_their_place(bytes in vec(any::<u8>(), 0..100)) {
        let output = check(&bytes, &[]);
        let said = text(&output.stderr);
        prop_assert_eq!(output.status.code(), Some(2), "{}", said);
        for line in said.lines() {
            prop_assert!(line.starts_with("hearken: p.toml:"), "{}", said);
        }
    }
}
