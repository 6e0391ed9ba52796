//! `hearken proxy`: config files, invalid settings, start and stop.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use proptest::collection::vec;
use proptest::prelude::*;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::program::{Running, fails_with, hearken, printed, serve, site, text};

fn docs(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

/// Runs `hearken proxy --check` with a config file `p.toml`.
fn check(content: impl AsRef<[u8]>, more: &[&str]) -> Output {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("p.toml"), content).unwrap();
    let args = [&["proxy", "--config", "p.toml", "--check"], more].concat();
    hearken(&args).current_dir(dir.path()).output().unwrap()
}

#[track_caller]
fn is_valid(content: &str, more: &[&str], summary: &str) {
    let output = check(content, more);
    assert_eq!(output.status.code(), Some(0), "{content}: {}", text(&output.stderr));
    let expected = format!("p.toml: configuration is valid: {summary}\n");
    assert_eq!(text(&output.stdout), expected);
    assert!(output.stderr.is_empty());
}

/// Checks that the file is rejected with these errors, in this order.
#[track_caller]
fn is_invalid(content: impl AsRef<[u8]>, more: &[&str], errors: &[&str]) {
    let output = check(content, more);
    let stderr = text(&output.stderr);
    let lines: Vec<_> =
        stderr.lines().map(|line| line.strip_prefix("hearken: ").unwrap()).collect();
    assert_eq!(lines, errors);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(output.stdout.is_empty());
}

/// Returns these lines with a server.
fn with_server(lines: &str) -> String {
    format!("{lines}\n[[upstreams.server]]\nto = \"a:1\"\n")
}

#[test]
fn valid_files_are_accepted() {
    let server = "[[upstreams.server]]\nto = \"http://a:9000\"\n";
    let two =
        format!("{server}\n[[upstreams.server]]\nto = 'unix:/run/b'\nweight = 3\nbackup = true\n");
    let listen = "listening on 127.0.0.1:8080";
    is_valid(server, &[], &format!("reverse proxy to 1 server, round-robin, {listen}"));
    is_valid(&two, &[], &format!("reverse proxy to 2 servers, round-robin, {listen}"));
    is_valid("[forward]", &[], &format!("forward proxy, {listen}"));
    is_valid("\u{feff}forward = {}\r\n", &[], &format!("forward proxy, {listen}"));
    is_valid(
        "listen = \"[::1]:81\"\nupstreams.balance = 'hash:field=X-Key'\n\
         upstreams.server = [{ to = 'http://a:9000' }]",
        &[],
        "reverse proxy to 1 server, hash:field=X-Key, listening on [::1]:81",
    );
    // The command line overrides the file.
    is_valid(
        &two,
        &["--to", "c:1", "--listen", "127.0.0.1:0", "--balance", "random-two"],
        "reverse proxy to 1 server, random-two, listening on 127.0.0.1:0",
    );
    is_valid(&two, &["--forward"], &format!("forward proxy, {listen}"));
    is_valid(
        "[forward]\nallow = ['.a']",
        &["--to", "a:1"],
        &format!("reverse proxy to 1 server, round-robin, {listen}"),
    );
    is_valid(
        &with_server("[health]\ninterval = '1s'"),
        &["--health-path", "/"],
        &format!("reverse proxy to 1 server, round-robin, {listen}"),
    );
    // Numbers in all forms of TOML.
    is_valid(
        &with_server(
            "workers = 0x2\nlimits.header = 16_384\ntimeouts = { header = 0.5, body = 3 }",
        ),
        &[],
        &format!("reverse proxy to 1 server, round-robin, {listen}"),
    );
}

#[test]
fn errors_in_files_are_reported_with_their_position() {
    for (lines, position, error) in [
        // Syntax.
        ("a = \n", (1, 5), "invalid TOML: string values must be quoted, expected literal string"),
        ("workers = 1\nworkers = 2\n", (2, 1), "invalid TOML: duplicate key"),
        ("[timeouts\n", (1, 10), "invalid TOML: unclosed table, expected `]`"),
        // Keys.
        ("lisen = \"a\"", (1, 1), "unknown key 'lisen' (did you mean 'listen'?)"),
        ("time-outs = 3", (1, 1), "unknown key 'time-outs' (did you mean 'timeouts'?)"),
        ("[time-outs]", (1, 2), "unknown key 'time-outs' (did you mean 'timeouts'?)"),
        (
            "[timeouts]\nhaeder = 3",
            (2, 1),
            "unknown key 'haeder' in [timeouts] (did you mean 'header'?)",
        ),
        ("[log]\nqwx = 3", (2, 1), "unknown key 'qwx' in [log] (known keys: file, format)"),
        (
            "header-timeout = 3",
            (1, 1),
            "unknown key 'header-timeout' (did you mean 'header' in [timeouts]?)",
        ),
        (
            "[log]\nallow = []",
            (2, 1),
            "unknown key 'allow' in [log] (did you mean 'allow' in [forward]?)",
        ),
        ("static.cache = 3", (1, 1), "unknown key 'static': not a setting of 'hearken proxy'"),
        // Types.
        ("log = 3", (1, 7), "'log' must be a table, not a number (write [log])"),
        ("forward = true", (1, 11), "'forward' must be a table, not a boolean (write [forward])"),
        (
            "experiments.splice = \"no\"",
            (1, 22),
            "'splice' must be true or false, not a string (example: splice = true)",
        ),
        (
            "workers = true",
            (1, 11),
            "'workers' must be a string or a number, not a boolean (example: workers = 2)",
        ),
        ("workers = [1]", (1, 11), "'workers' has one value, not an array"),
        (
            "listen = 2030-01-31",
            (1, 10),
            "'listen' must be a string or a number, not a date (example: listen = \
             \"127.0.0.1:8080\")",
        ),
        (
            "[forward]\nallow = \"a\"",
            (2, 9),
            "'allow' must be an array, not a string (example: allow = [\".example.org\", \
             \"10.1.0.0/16\"])",
        ),
        // Values.
        ("  workers = 0", (1, 13), "invalid value '0' for 'workers': must be at least 1"),
        ("workers = -1", (1, 11), "invalid value '-1' for 'workers': expected a whole number"),
        (
            "workers = 99999999999999999999",
            (1, 11),
            "invalid value '99999999999999999999' for 'workers': too large",
        ),
        (
            "# é\nlog = { file = 'é', format = 'xml' }",
            (2, 30),
            "invalid value 'xml' for 'format': expected combined, json",
        ),
        (
            "[timeouts]\nheader = 0",
            (2, 10),
            "invalid value '0' for 'header': must be greater than 0",
        ),
        (
            "[timeouts]\nheader = '5x'",
            (2, 10),
            "invalid value '5x' for 'header': unknown unit 'x' (use ms, s, m or h)",
        ),
        (
            "[timeouts]\nrequest = nan",
            (2, 11),
            "invalid value 'nan' for 'request': expected a duration such as 500ms, 5s, 2m or 1h",
        ),
        (
            "[limits]\nheader = 12",
            (2, 10),
            "invalid value '12' for 'header': must be from 1k to 1M",
        ),
        (
            "[limits]\nbody = '1x'",
            (2, 8),
            "invalid value '1x' for 'body': expected a size such as 1000, 16k, 8M or 1G",
        ),
        (
            "[headers]\nvia = \"\\u0000\"",
            (2, 7),
            "invalid value '\\0' for 'via': expected a name of letters, digits and punctuation, or \
             none",
        ),
        (
            "[health]\npath = 'x'",
            (2, 8),
            "invalid value 'x' for 'path': expected a path that begins with a slash, such as \
             /healthz",
        ),
    ] {
        let (line, column) = position;
        let place = format!("cannot read config file 'p.toml': line {line}, column {column}: ");
        is_invalid(with_server(lines), &[], &[&(place + error)]);
    }
}

#[test]
fn contradictions_in_files_are_reported_with_their_position() {
    let missing = "no upstream configured; add [[upstreams.server]] or [forward]";
    for content in ["", "workers = 2\n"] {
        is_invalid(content, &[], &[&format!("invalid config file 'p.toml': {missing}")]);
    }
    for (lines, position, error) in [
        (
            "[health]\nrise = 2",
            (2, 8),
            "'health.rise': has no effect without '--health-path' or 'health.path'",
        ),
        (
            "[limits]\ntarget = '17k'",
            (2, 10),
            "'limits.target': 17408 bytes exceed limits.header of 16384 bytes",
        ),
        (
            "[admin]\nlisten = '0.0.0.0:8080'",
            (2, 10),
            "'admin.listen': the server listens on 127.0.0.1:8080 for clients; use another port",
        ),
        (
            "[forward]\nallow = ['a']",
            (1, 2),
            "'forward': cannot be combined with upstream servers; remove one",
        ),
        ("[log]\nfile = 'no/such'", (2, 8), "'log.file': directory 'no' does not exist"),
        ("[log]\nfile = '/'", (2, 8), "'log.file': '/' is a directory"),
        (
            "[[upstreams.server]]\nto = 'http://A'\n[[upstreams.server]]\nto='a:80'",
            (4, 4),
            "'upstreams.server': same address as server 1; use a weight instead",
        ),
        (
            "[[upstreams.server]]\nto = '127.0.0.1:8080'",
            (2, 6),
            "'upstreams.server': the proxy itself listens on 127.0.0.1:8080; use another port",
        ),
    ] {
        let (line, column) = position;
        let place = format!("invalid config file 'p.toml': line {line}, column {column}: ");
        is_invalid(with_server(lines), &[], &[&(place + error)]);
    }
    for (lines, start) in [
        ("events = 'kqueue'", "line 1, column 10: 'events': unknown mechanism 'kqueue'"),
        ("upstreams.keepalive = 999999999999", "line 1, column 23: 'upstreams.keepalive': 9999"),
    ] {
        let output = check(with_server(lines), &[]);
        let start = format!("hearken: invalid config file 'p.toml': {start}");
        assert!(text(&output.stderr).starts_with(&start), "{}", text(&output.stderr));
    }
    let no_effect = |line, column, key| {
        let place = format!("invalid config file 'p.toml': line {line}, column {column}: ");
        format!("{place}'{key}': has no effect in a forward proxy; remove it")
    };
    is_invalid(
        "[forward]\n[upstreams]\nqueue = 3\n[health]\npath = '/'",
        &[],
        &[&no_effect(3, 9, "upstreams.queue"), &no_effect(5, 8, "health.path")],
    );
}

#[test]
fn invalid_servers_are_rejected() {
    let long = format!("unix:/{}", "x".repeat(107));
    for (address, error) in [
        ("ftp://a", "unknown scheme 'ftp' (use http://, https://, h2c:// or unix:)"),
        ("http://a/b", "a path or query is not supported (remove '/b')"),
        ("http://a?b", "a path or query is not supported (remove '?b')"),
        ("http://u:p@a", "user names are not supported (use http://HOST:PORT)"),
        ("http://", "missing host (use http://HOST:PORT)"),
        ("http://:80", "missing host (use http://HOST:PORT)"),
        ("http://a:0", "port must be from 1 to 65535 (use http://HOST:PORT)"),
        ("http://a:+1", "port must be from 1 to 65535 (use http://HOST:PORT)"),
        ("http://a:65536", "port must be from 1 to 65535 (use http://HOST:PORT)"),
        ("http://::1", "IPv6 addresses must be enclosed in brackets (use http://HOST:PORT)"),
        ("http://[::1", "missing ']' (use http://HOST:PORT)"),
        ("http://[::x]", "invalid IPv6 address '::x' (use http://HOST:PORT)"),
        ("http://[fe80::1%eth0]", "interface 'eth0' must be given as its index (see 'ip link')"),
        ("http://256.1.1.1", "'256.1.1.1' is neither an IPv4 address nor a host name"),
        ("http://a..b", "invalid host name 'a..b' (use http://HOST:PORT)"),
        ("http://a b", "' ' is not allowed in a host name (use http://HOST:PORT)"),
        ("a", "missing port (use http://HOST:PORT or unix:/PATH)"),
        ("a:1/x", "unexpected '/x' (use http://HOST:PORT or unix:/PATH)"),
        ("unix:x", "the path of a socket must be absolute (use unix:/PATH)"),
        ("unix:/x/", "invalid path of a socket (use unix:/PATH)"),
        (long.as_str(), "the path of a socket has at most 107 bytes"),
        ("a:1;weigth=2", "unknown parameter 'weigth=2' (expected weight=N or backup)"),
        ("a:1;weight=0", "weight must be from 1 to 65535"),
        ("a:1;backup;backup", "duplicate parameter 'backup'"),
    ] {
        let output = check(format!("[[upstreams.server]]\nto = \"{address}\"\n"), &[]);
        let errors = text(&output.stderr);
        let place = "hearken: cannot read config file 'p.toml': line 2, column 6: invalid value '";
        assert!(errors.starts_with(place) && errors.contains(error), "{address}: {errors}");
        fails_with(&["proxy", "--check", "--to", address], error);
    }
    let two = "[[upstreams.server]]\nweight = 0\nbakup = true\n[[upstreams.server]]\nto = 3\n\
               [[upstreams.server]]\nto = 'a:1;weight=2'\nweight = 2\n";
    let missing =
        "missing key 'to' in [[upstreams.server]] (example: to = \"http://127.0.0.1:9000\")";
    // All errors at once.
    let errors = [
        format!("line 1, column 1: {missing}"),
        "line 2, column 10: invalid value '0' for 'weight': weight must be from 1 to 65535".into(),
        "line 3, column 1: unknown key 'bakup' in [[upstreams.server]] (did you mean 'backup'?)"
            .into(),
        "line 5, column 6: 'to' cannot be a number (example: to = \"http://127.0.0.1:9000\")".into(),
        "line 7, column 6: invalid value 'a:1;weight=2;weight=2' for 'server': duplicate parameter \
         'weight'"
            .into(),
    ]
    .map(|error| format!("cannot read config file 'p.toml': {error}"));
    is_invalid(two, &[], &errors.each_ref().map(String::as_str));
    for (content, place, type_name) in [
        ("[upstreams]\nserver = 'a:1'", "line 2, column 10", "a string"),
        ("[upstreams.server]\nto = 'a:1'", "line 1, column 1", "a table"),
    ] {
        let error = format!(
            "cannot read config file 'p.toml': {place}: 'upstreams.server' must be an array of \
             tables, not {type_name} (write [[upstreams.server]])"
        );
        is_invalid(content, &[], &[&error]);
    }
    is_valid(
        "[[upstreams.server]]\nto = 'http://[::1]:81/'\n[[upstreams.server]]\nto = 'HTTP://_a.b-c.'",
        &[],
        "reverse proxy to 2 servers, round-robin, listening on 127.0.0.1:8080",
    );
}

#[test]
fn unreadable_files_are_reported() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().display().to_string();
    for (path, error) in [
        ("/no/such", "No such file"),
        (path.as_str(), "Is a directory"),
        ("/dev/zero", "larger than 1 MiB"),
    ] {
        let error = format!("hearken: cannot read config file '{path}': {error}");
        fails_with(&["proxy", "--check", "--config", path], &error);
    }
    let error = "cannot read config file 'p.toml': line 2, column 6: not valid UTF-8";
    is_invalid(b"workers = 2\nx = '\xff'", &[], &[error]);
    let mut child = hearken(&["proxy", "--check", "--config", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"x = 1").unwrap();
    let output = child.wait_with_output().unwrap();
    let error = "hearken: cannot read config file 'stdin': line 1, column 1: unknown key 'x'";
    assert!(text(&output.stderr).starts_with(error));
}

#[test]
fn contradictory_arguments_are_rejected() {
    for (args, error) in [
        (&[][..], "no upstream configured; use --to, --forward or --config"),
        (
            &["--to", "a:1", "--to", "http://A:1"],
            "invalid argument '--to': same address as server 1",
        ),
        (
            &["--forward", "--to", "a:1"],
            "invalid argument '--forward': cannot be combined with upstream servers",
        ),
        (
            &["--forward", "--balance", "random-two"],
            "invalid argument '--balance': has no effect in a forward proxy",
        ),
        (
            &["--to", "a:1", "--allow", "a"],
            "invalid argument '--allow': has no effect without '--forward'",
        ),
        (
            &["--to", "a:1", "--health-interval", "2"],
            "invalid argument '--health-interval': has no effect without '--health-path'",
        ),
        (
            &["--to", "a:1", "--admin", "127.0.0.1:8080"],
            "invalid argument '--admin': the server listens on",
        ),
    ] {
        fails_with(&[&["proxy"], args].concat(), error);
    }
}

/// Flags with invalid values.
const ARGUMENTS: &str = "\
--to=
--allow=http://a|a:1|10.0.0.1/8|10.0.0.0/33
--deny=10.0.0.0/x|.
--listen=8080|localhost:80
--proxy-protocol=v1|10.0.0.0/33|10.0.0.0/8,a
--balance=fastest|hash:field=a b|hash:field=
--keepalive=-1
--max-requests=0
--max-attempts=0
--send-proxy-protocol=v3
--health-path=x|/a b|/a#b
--health-interval=0
--max-body=1q
--header-timeout=0
--idle-timeout=0
--connect-timeout=0
--response-timeout=0
--request-timeout=x
--via=|a b
--x-forwarded=set
--access-log=
--log-format=xml
--admin=9090
--events=kqueue
--workers=0
--max-connections=0";

/// Keys with invalid values.
const KEYS: &str = "\
forward.connect-ports = [0]
forward.connect-ports = [65536]
half-close = 'no'
upstreams.queue = 'x'
upstreams.slow-start = 'x'
upstreams.resolve-interval = '-1s'
upstreams.max-fails = -1
upstreams.fail-timeout = 0
health.host = 'a b'
health.timeout = 0
health.fall = 0
health.rise = 0
health.status = 100
health.status = 600
limits.min-rate = -1
limits.header = 1023
limits.header = '2M'
limits.fields = 0
limits.fields = 1001
limits.target = 63
timeouts.body = 0
timeouts.upload = 0
timeouts.send = 0
timeouts.queue = 0
timeouts.upstream-send = 0
timeouts.response-body = 0
timeouts.tunnel = 0
timeouts.keepalive = 0
timeouts.shutdown = 'x'
headers.forwarded = 'set'
headers.host = 'mine'";

#[test]
fn invalid_values_are_rejected() {
    for line in ARGUMENTS.lines() {
        let (flag, values) = line.split_once('=').unwrap();
        for value in values.split('|') {
            let args = ["proxy", "--check", "--to=a:1", &format!("{flag}={value}")];
            fails_with(&args, &format!("'{flag}"));
        }
    }
    for experiment in
        "accept-limit=0 batch=0 close=x defer-accept=x io=x interest=x splice=maybe meter-waits=1 \
         rt-queue=x io"
            .split(' ')
    {
        let args = ["proxy", "--check", "--to=a:1", "--experiment", experiment];
        fails_with(&args, "'--experiment ");
    }
    for line in KEYS.lines() {
        let name = line.split(' ').next().unwrap().rsplit('.').next().unwrap();
        let output = check(with_server(line), &[]);
        let errors = text(&output.stderr);
        assert!(errors.contains(&format!(" for '{name}': ")), "{line}: {errors}");
    }
}

#[test]
fn invalid_rules_are_rejected() {
    for (rule, error) in [
        ("10.0.0.1/8", "the address has bits after its prefix (did you mean '10.0.0.0/8'?)"),
        ("::1/64", "the address has bits after its prefix (did you mean '::/64'?)"),
        ("10.0.0.0/33", "the prefix length must be from 0 to 32"),
        ("a/8", "'a' is not an IP address; expected ADDR, ADDR/BITS, NAME or .DOMAIN"),
        ("a:443", "ports are not supported; expected ADDR, ADDR/BITS, NAME or .DOMAIN"),
        ("*.a", "'*' is not allowed in a host name; expected ADDR, ADDR/BITS, NAME or .DOMAIN"),
    ] {
        fails_with(&["proxy", "--check", "--forward", "--allow", rule], error);
        fails_with(&["proxy", "--check", "--forward", "--deny", rule], error);
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
        printed(&["proxy", "--check", "--forward", "--allow", rule]);
    }
}

#[test]
fn printed_files_are_valid_and_equal() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("printed.toml");
    let path = path.to_str().unwrap();
    let reverse = [
        "--to",
        "http://a:9000;weight=3",
        "--to",
        "unix:/run/b;backup",
        "--health-path",
        "/health",
    ];
    let forward = ["--forward", "--deny", ".a", "--experiment=splice=no", "--access-log", "log"];
    for args in [&reverse[..], &forward] {
        let text = printed(&[&["proxy", "--print-config"], args].concat());
        fs::write(path, &text).unwrap();
        assert_eq!(printed(&["proxy", "--config", path, "--print-config"]), text);
        printed(&["proxy", "--config", path, "--check"]);
    }
}

#[test]
fn example_files_are_valid() {
    printed(&["proxy", "--check", "--config", docs("proxy.toml").to_str().unwrap()]);
    for guide in ["proxy.md", "configuration.md"] {
        let guide = fs::read_to_string(docs(guide)).unwrap();
        let files: Vec<_> = guide.split("```toml\n").skip(1).collect();
        assert!(!files.is_empty());
        for file in files {
            let output = check(file.split("```").next().unwrap(), &[]);
            assert!(output.status.success(), "{file}: {}", text(&output.stderr));
        }
    }
}

fn get(addr: &str) -> String {
    let mut client = TcpStream::connect(addr).unwrap();
    client.write_all(b"GET /1b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut response = String::new();
    client.read_to_string(&mut response).unwrap();
    response
}

#[test]
fn a_proxy_starts_from_a_file_and_stops() {
    let dir = site();
    let (_server, url) = serve(dir.path(), &[]);
    let path = dir.path().join("proxy.toml");
    let file = format!(
        "listen = '127.0.0.1:0'\nworkers = 2\n[[upstreams.server]]\nto = '{url}'\n\
         [headers]\nvia = 'edge'\n[log]\nfile = 'log'\n[admin]\nlisten = '127.0.0.1:0'\n"
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
    let response = get(addr);
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    assert!(response.ends_with("\r\n\r\nx"), "{response}");
    assert!(response.contains("\r\nVia: 1.1 edge\r\n"), "{response}");
    proxy.signal(Signal::TERM);
    assert_eq!(proxy.child.wait().unwrap().code(), Some(0));
    // The name is relative to the config file.
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
    let response = get(url.strip_prefix("http://").unwrap());
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    let names: Vec<_> = response.split("1.1 hearken-").skip(1).map(|name| &name[..8]).collect();
    assert!(names.len() == 2 && names[0] != names[1], "{response}");
}

#[test]
fn addresses_in_use_are_reported() {
    let used = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = used.local_addr().unwrap().to_string();
    let to = ["proxy", "--to", "127.0.0.1:1"];
    fails_with(&[&to[..], &["--listen", &addr]].concat(), &addr);
    fails_with(&[&to[..], &["--listen", "127.0.0.1:0", "--admin", &addr]].concat(), &addr);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn any_bytes_are_rejected_with_the_file_name(bytes in vec(any::<u8>(), 0..100)) {
        let output = check(&bytes, &[]);
        let errors = text(&output.stderr);
        prop_assert_eq!(output.status.code(), Some(2), "{}", errors);
        for line in errors.lines() {
            prop_assert!(line.contains(" config file 'p.toml': "), "{}", errors);
        }
    }
}
