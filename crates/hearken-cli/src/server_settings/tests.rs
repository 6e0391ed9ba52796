//! Settings from the command line and from files, and files printed from settings.

use std::ffi::OsStr;
use std::fs;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use clap::Command;
use hearken::io::readiness::Order;
use hearken_server::proxy::config::{HealthCheck, ProxyMode, Server, Upstreams};
use hearken_server::runtime::network::Network;
use hearken_server::static_files::SiteConfig;
use hearken_server::{Config, proxy};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use tempfile::TempDir;

use super::table::SECTIONS;
use super::{Options, PROXY, SERVE, address, table, validate_proxy, validate_serve};
use crate::settings::resolve::resolve;
use crate::settings::{EXPERIMENTS, Kind, Setting, Table, arguments, print, reference, toml_value};

fn resolved(table: &Table<Options>, args: &[&str]) -> Result<Options, String> {
    let command = arguments::add(table, Command::new("hearken")).no_binary_name(true);
    let matches = command.try_get_matches_from(args).map_err(|error| error.to_string())?;
    let validate = if table.bit == table::SERVE { validate_serve } else { validate_proxy };
    let settings = resolve(table, &matches, validate);
    settings.map(|settings| settings.config).map_err(|failure| failure.error.to_string())
}

/// Returns the server's configuration, with a fixed name instead of a random one.
fn config(table: &Table<Options>, mut options: Options) -> Config {
    options.via.get_or_insert_with(|| "any-name".to_owned());
    match table.bit {
        table::SERVE => options.into_static_files(),
        _ => options.into_proxy(),
    }
}

fn configured(table: &Table<Options>, args: &[&str]) -> Config {
    let options = resolved(table, args).unwrap_or_else(|error| panic!("{args:?}: {error}"));
    config(table, options)
}

fn upstreams(args: &[&str]) -> Upstreams {
    match &configured(&PROXY, args).proxy_mut().unwrap().mode {
        ProxyMode::Reverse(upstreams) => upstreams.clone(),
        ProxyMode::Forward(_) => panic!("a forward proxy"),
    }
}

fn printed(table: &Table<Options>, options: &Options) -> String {
    print::print(table, options).map_err(|failure| failure.error.to_string()).unwrap()
}

/// Two values of each setting that are not its default.
const VALUES: &[(&str, &str, &str)] = &[
    ("static.root", "public", "/srv/a b"),
    ("upstreams.server", "http://a:9000;weight=3;backup", "unix:/run/a b"),
    ("forward", "yes", "yes"),
    ("as", "userver", "dphttpd"),
    ("listen", "[::1]:80", "0.0.0.0:0"),
    ("workers", "2", "7"),
    ("events", "poll", "epoll-edge"),
    ("model", "hybrid", "hybrid"),
    ("distribution", "shared", "migrate"),
    ("proxy-protocol", "all", "10.0.0.0/8"),
    ("http2", "no", "no"),
    ("half-close", "abort", "abort"),
    ("static.cache", "0", "1G"),
    ("static.dotfiles", "yes", "yes"),
    ("upstreams.balance", "hash:field=X-Key", "random-two"),
    ("upstreams.keepalive", "0", "17"),
    ("upstreams.max-requests", "1", "99"),
    ("upstreams.queue", "0", "5000"),
    ("upstreams.max-attempts", "1", "9"),
    ("upstreams.max-fails", "0", "1"),
    ("upstreams.fail-timeout", "250ms", "1m"),
    ("upstreams.slow-start", "10s", "1.5m"),
    ("upstreams.resolve-interval", "0", "7ms"),
    ("upstreams.send-proxy-protocol", "v1", "v2"),
    ("health.path", "/healthz?a=b", "/"),
    ("health.interval", "1s", "250ms"),
    ("health.timeout", "1s", "3"),
    ("health.host", "example.org", "[::1]:8080"),
    ("health.fall", "1", "8"),
    ("health.rise", "1", "8"),
    ("health.status", "204", "200"),
    ("forward.allow", ".example.org", "10.0.0.0/8"),
    ("forward.deny", "::1", "secret.example.org"),
    ("forward.connect-ports", "8443", "1"),
    ("timeouts.header", "1s", "2"),
    ("timeouts.body", "1s", "2"),
    ("timeouts.upload", "1s", "2"),
    ("timeouts.idle", "1s", "2"),
    ("timeouts.send", "1s", "2"),
    ("timeouts.queue", "1s", "2"),
    ("timeouts.connect", "1s", "2"),
    ("timeouts.upstream-send", "1s", "2"),
    ("timeouts.response", "1s", "2"),
    ("timeouts.response-body", "1s", "2"),
    ("timeouts.request", "1s", "2"),
    ("timeouts.tunnel", "1s", "2"),
    ("timeouts.keepalive", "1s", "2"),
    ("timeouts.shutdown", "0", "2"),
    ("limits.connections", "1", "100000"),
    ("limits.body", "0", "8M"),
    ("limits.header", "8k", "65536"),
    ("limits.fields", "1", "1000"),
    ("limits.target", "64", "1k"),
    ("limits.min-rate", "0", "1M"),
    ("headers.via", "none", "edge-1:80"),
    ("headers.x-forwarded", "append", "remove"),
    ("headers.forwarded", "keep", "replace"),
    ("headers.host", "upstream", "upstream"),
    ("headers.client-subject", "X-Subject", "x"),
    ("log.file", "-", "/tmp/it's a \"log\""),
    ("log.format", "json", "json"),
    ("upstream-tls.ca", "ca.pem", "/etc/a b.pem"),
    ("upstream-tls.name", "a.example", "b.example"),
    ("upstream-tls.cert", "cert.pem", "/etc/a b.pem"),
    ("upstream-tls.key", "key.pem", "/etc/a b.pem"),
    ("upstream-tls.min-version", "1.3", "1.3"),
    ("upstream-tls.insecure", "yes", "yes"),
    ("tls.cert", "cert.pem", "/etc/a b.pem"),
    ("tls.key", "key.pem", "/etc/a b.pem"),
    ("tls.min-version", "1.3", "1.3"),
    ("tls.ocsp", "response.der", "/etc/a b.der"),
    ("tls.client-ca", "ca.pem", "/etc/a b.pem"),
    ("tls.client-auth", "optional", "optional"),
    ("tls.redirect", "127.0.0.1:80", "127.0.0.1:81"),
    ("tls.hsts", "8760h", "1s"),
    ("tls.ticket-keys", "ticket.keys", "/etc/a b.keys"),
    ("admin.listen", "127.0.0.1:9090", "[::]:0"),
    ("experiments.io", "wait-first", "wait-to-receive"),
    ("experiments.interest", "once", "every-state"),
    ("experiments.accept-limit", "all", "1"),
    ("experiments.batch", "1", "64"),
    ("experiments.close", "explicit", "explicit"),
    ("experiments.memory-file", "0", "1M"),
    ("experiments.cork", "yes", "yes"),
    ("experiments.timeouts", "scan", "scan"),
    ("experiments.rt-queue", "7", "900"),
    ("experiments.defer-accept", "1s", "90"),
    ("experiments.meter-waits", "yes", "yes"),
    ("experiments.splice", "no", "no"),
];

fn values_of(setting: &Setting<Options>) -> [&'static str; 2] {
    let values = VALUES.iter().find(|(key, ..)| *key == setting.key);
    let (_, one, other) = values.unwrap_or_else(|| panic!("no values for {}", setting.key));
    [one, other]
}

/// Returns the setting as a config file.
fn toml(setting: &Setting<Options>, value: &str) -> String {
    let line = match setting.kind {
        Kind::Section => return format!("[{}]\n", setting.key),
        Kind::Tables(_) => {
            let mut parts = value.split(';');
            let address = parts.next().unwrap();
            let more = match parts.count() {
                0 => "",
                _ => "weight = 3\nbackup = true\n",
            };
            return format!("[[{}]]\nto = \"{address}\"\n{more}", setting.key);
        }
        Kind::Switch => format!("{} = {}\n", setting.name(), value == "yes"),
        Kind::List(_) => format!("{} = [{}]\n", setting.name(), toml_value(value)),
        Kind::Value => format!("{} = {}\n", setting.name(), toml_value(value)),
    };
    match setting.section() {
        "" => line,
        section => format!("[{section}]\n{line}"),
    }
}

/// Returns arguments that a setting requires.
fn required(table: &Table<Options>, setting: &Setting<Options>) -> &'static [&'static str] {
    let is_key = |prefix: &str| setting.key.starts_with(prefix);
    match table.bit {
        table::SERVE if is_key("static.root") => &[],
        table::SERVE if is_key("distribution") => &[".", "--model=hybrid"],
        table::SERVE if is_key("tls.") && setting.name() != "cert" => &[".", "--tls-cert=c"],
        _ if is_key("upstream-tls.") => &["--to=https://b:1"],
        _ if is_key("headers.client-subject") => &["--to=b:1", "--tls-cert=c", "--tls-client-ca=a"],
        _ if is_key("tls.") && setting.name() != "cert" => &["--to=b:1", "--tls-cert=c"],
        table::SERVE => &["."],
        _ if is_key("forward.") => &["--forward"],
        _ if is_key("health.") && setting.name() != "path" => &["--to=b:1", "--health-path=/"],
        _ if is_key("forward") || is_key("upstreams.server") => &[],
        _ => &["--to=b:1"],
    }
}

#[test]
fn defaults_are_those_of_the_server() {
    let ours = configured(&PROXY, &["--to", "a:1"]);
    let server = Server::new(address::address("a:1").unwrap());
    let mut proxy = proxy::Config::new(ProxyMode::Reverse(Upstreams::new(vec![server])));
    "any-name".clone_into(&mut proxy.fields.via);
    let mut theirs = Config::proxy(proxy);
    theirs.event_loops.on_limit = ours.event_loops.on_limit;
    theirs.on_tls_reload = ours.on_tls_reload;
    assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
    let active = upstreams(&["--to", "a:1", "--health-path", "/"]).health;
    assert_eq!(format!("{active:?}"), format!("{:?}", Some(HealthCheck::default())));

    let ours = configured(&SERVE, &["."]);
    let mut theirs = Config::static_files(SiteConfig::default());
    theirs.event_loops.on_limit = ours.event_loops.on_limit;
    theirs.on_tls_reload = ours.on_tls_reload;
    assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
}

#[test]
fn every_setting_reaches_the_server_from_file_and_command_line() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("c.toml");
    for table in [&SERVE, &PROXY] {
        for setting in table.settings() {
            // The process uses the first; the others name files that must exist.
            if setting.key == "experiments.rt-queue" || setting.section().ends_with("tls") {
                continue;
            }
            let required = required(table, setting);
            let without = match (required, table.bit) {
                ([], table::SERVE) => &["."],
                ([], _) => &["--to=b:1"][..],
                _ => required,
            };
            let default = format!("{:?}", configured(table, without));
            for value in values_of(setting) {
                fs::write(&path, toml(setting, value)).unwrap();
                let file = [required, &["--config", path.to_str().unwrap()]].concat();
                let from_file = format!("{:?}", configured(table, &file));
                assert_ne!(from_file, default, "{} {value}", setting.key);
                let argument = match (setting.flag, setting.kind) {
                    (Some(flag), Kind::Section) => format!("--{flag}"),
                    (Some(flag), _) => format!("--{flag}={value}"),
                    (None, _) if setting.positional => value.to_owned(),
                    (None, _) if setting.section() == EXPERIMENTS => {
                        format!("--experiment={}={value}", setting.name())
                    }
                    _ => continue,
                };
                // File names in the file are relative to its directory.
                if !setting.is_path || value.starts_with(['/', '-']) {
                    let from_flag = configured(table, &[required, &[&argument]].concat());
                    assert_eq!(format!("{from_flag:?}"), from_file, "{argument}");
                }
            }
        }
    }
}

#[test]
fn the_command_line_overrides_the_file() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("proxy.toml");
    let file = "proxy-protocol = ['10.0.0.0/8']\nworkers = 3\n[[upstreams.server]]\nto = 'a:1'\n\
                [[upstreams.server]]\nto = 'b:1'\n[upstreams]\nqueue = 3\n[health]\npath = '/'\n\
                rise = 7\n[log]\nfile = 'log'\n[experiments]\nsplice = false\nmeter-waits = true\n";
    fs::write(&path, file).unwrap();
    let file = path.to_str().unwrap();
    let with = |args: &[&str]| configured(&PROXY, &[&["--config", file], args].concat());
    let servers = |config: &mut Config| match &config.proxy_mut().unwrap().mode {
        ProxyMode::Reverse(upstreams) => upstreams.servers.len(),
        ProxyMode::Forward(_) => 0,
    };
    let numbers = |config: &mut Config| {
        let loops = (config.event_loops.worker_limit(), config.event_loops.measure_waits);
        (loops, config.proxy_mut().unwrap().splice, servers(config))
    };
    let mut plain = with(&[]);
    assert_eq!(numbers(&mut plain), ((3, true), false, 2));
    assert_eq!(plain.access_log, Some(dir.path().join("log")));
    assert_eq!(plain.proxy_protocol, ["10.0.0.0/8".parse().unwrap()]);
    let experiments = ["--experiment=splice=yes", "--experiment=meter-waits=no"];
    let mut over = with(&[&["--workers=1", "--to=c:1"], &experiments[..]].concat());
    assert_eq!(numbers(&mut over), ((1, false), true, 1));
    assert_eq!(with(&["--access-log=none"]).access_log, None);
    assert_eq!(with(&["--proxy-protocol=none"]).proxy_protocol, []);
    // Settings of the file that lose their effect are ignored.
    assert_eq!(servers(&mut with(&["--forward"])), 0);
    assert!(upstreams(&["--config", file, "--health-path=none"]).health.is_none());
}

#[test]
fn settings_override_the_preset() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("c.toml");
    fs::write(&path, "as = 'userver'\n[experiments]\nio = 'wait-first'\n").unwrap();
    let file = path.to_str().unwrap();
    let loops = |args: &[&str]| configured(&SERVE, &[&["."], args].concat()).event_loops;
    let of_file = loops(&["--config", file]);
    assert_eq!((of_file.order, of_file.accept_limit), (Order::WaitFirst, None));
    assert!(of_file.cork);
    for args in [
        ["--as=microserver", "--experiment=io=try-first"],
        ["--experiment=io=try-first", "--as=microserver"],
    ] {
        let loops = loops(&args);
        assert_eq!((loops.order, loops.accept_limit), (Order::TryFirst, NonZeroU32::new(1)));
    }
    // The command line overrides the file.
    assert_eq!(loops(&["--config", file, "--as=dphttpd"]).order, Order::TryFirst);
}

#[test]
fn lists_are_separated_by_commas_or_repeated() {
    let networks =
        |args: &[&str]| configured(&PROXY, &[&["--to", "a:1"], args].concat()).proxy_protocol;
    let both = ["10.0.0.0/8", "2001:db8::1"].map(|network| network.parse().unwrap());
    assert_eq!(networks(&[]), []);
    assert_eq!(networks(&["--proxy-protocol", "10.0.0.0/8,2001:db8::1"]), both);
    let repeated = ["--proxy-protocol", "10.0.0.0/8", "--proxy-protocol", "2001:db8::1"];
    assert_eq!(networks(&repeated), both);
    assert_eq!(networks(&["--proxy-protocol", "all"]), Network::ALL);
}

#[test]
fn the_reference_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let commands = [(table::SERVE, "hearken serve"), (table::PROXY, "hearken proxy")];
    reference::check_document(&path, &reference::reference(&PROXY, &commands));
}

#[test]
fn summaries_are_short_phrases() {
    for Setting { key, summary, details, placeholder, .. } in table::SETTINGS {
        assert!(summary.len() <= 76 && !summary.contains('\n'), "{key}: {summary}");
        assert!(summary.starts_with(char::is_uppercase) && !summary.ends_with('.'), "{key}");
        assert!(details.is_empty() || details.ends_with('.'), "{key}: {details}");
        assert!(!placeholder.contains(['<', '>']), "{key}");
        let words = format!("{summary} {details}").to_lowercase();
        for word in words.split(|c: char| !c.is_alphanumeric()) {
            let banned = ["who", "what", "whatever", "how", "told", "asked"];
            assert!(!banned.contains(&word), "{key}: '{word}' in: {words}");
        }
        let section = key.split_once('.').map_or("", |(section, _)| section);
        assert!(SECTIONS.iter().any(|known| known.name == section), "{key}");
    }
}

type Values = Vec<(&'static str, String)>;

fn table_of(is_serve: bool) -> &'static Table<Options> {
    if is_serve { &SERVE } else { &PROXY }
}

/// Generates settings of one command that are not the default.
fn settings() -> impl Strategy<Value = (bool, Values)> {
    let servers = vec("[a-z]{1,8}:[1-9][0-9]{0,3}(;weight=[2-9])?(;backup)?", 1..5);
    (0..4, servers)
        .prop_flat_map(|(kind, servers)| {
            let mut fixed: Values = match kind {
                0 => vec![("static.root", "public".to_owned())],
                1 => vec![("forward", "yes".to_owned())],
                _ => servers
                    .into_iter()
                    .enumerate()
                    .map(|(index, server)| ("upstreams.server", format!("s{index}{server}")))
                    .collect(),
            };
            if kind == 3 {
                fixed.push(("health.path", "/health".to_owned()));
            }
            let base = options(table_of(kind == 0), &fixed);
            let taken =
                ["static.root", "forward", "upstreams.server", "health.path", "limits.target"];
            let settings = table_of(kind == 0)
                .settings()
                .filter(|setting| {
                    !taken.contains(&setting.key)
                        && table_of(kind == 0).applies(setting, &base).is_ok()
                })
                .map(|setting| (setting.key, values_of(setting)));
            let settings: Vec<_> = settings.collect();
            let count = settings.len();
            let chosen = (subsequence(settings, 0..=count), vec(any::<bool>(), count));
            (Just((kind == 0, fixed)), chosen)
        })
        .prop_map(|((is_serve, mut values), (settings, which))| {
            let chosen = settings.iter().zip(which);
            values.extend(
                chosen.map(|((key, values), which)| (*key, values[usize::from(which)].to_owned())),
            );
            (is_serve, values)
        })
}

fn options(table: &Table<Options>, values: &Values) -> Options {
    let mut options = Options::default();
    for (key, value) in values {
        let setting = table.settings().find(|setting| setting.key == *key).unwrap();
        (setting.set)(&mut options, OsStr::new(value)).unwrap();
    }
    options
}

/// Generates text that is similar to a config file.
fn similar_to_a_file() -> impl Strategy<Value = String> {
    let sections: Vec<&str> = SECTIONS.iter().map(|section| section.name).collect();
    let names: Vec<&str> =
        table::SETTINGS.iter().map(Setting::name).chain(["to", "weight", "backup"]).collect();
    let values: Vec<String> = VALUES
        .iter()
        .flat_map(|(_, one, other)| [one, other])
        .map(|value| toml_value(value).to_string())
        .chain(
            ["true", "[]", "[1, 'a', true]", "{}", "-1", "0x7f", "1e9", "nan", "1979-05-27", "''"]
                .map(str::to_owned),
        )
        .collect();
    let line = prop_oneof![
        3 => (select(names), select(values))
            .prop_map(|(name, value)| format!("{name} = {value}\n")),
        1 => select(sections).prop_map(|section| format!("[{section}]\n")),
        1 => Just("[[upstreams.server]]\n".to_owned()),
        1 => "\\PC{0,12}\n",
    ];
    vec(line, 0..12).prop_map(|lines| lines.concat())
}

/// Checks that the file is accepted and printed back, or that each error names the file.
fn is_accepted_or_rejected(path: &PathBuf) -> Result<(), TestCaseError> {
    let name = path.to_str().unwrap();
    match resolved(&PROXY, &["--config", name]) {
        Ok(options) => {
            let text = printed(&PROXY, &options);
            fs::write(path, &text).unwrap();
            let again = resolved(&PROXY, &["--config", name]).map_err(TestCaseError::fail)?;
            prop_assert_eq!(printed(&PROXY, &again), text);
        }
        Err(errors) => {
            for line in errors.split("\nhearken: ") {
                let named = line.contains(&format!(" config file '{name}': "));
                prop_assert!(named && !line.contains('\n'), "{}", errors);
            }
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn printed_settings_are_read_back((is_serve, values) in settings()) {
        let table = table_of(is_serve);
        let options = options(table, &values);
        let text = printed(table, &options);
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("c.toml");
        fs::write(&path, &text).unwrap();
        let again = resolved(table, &["--config", path.to_str().unwrap()]);
        let again = again.map_err(TestCaseError::fail)?;
        prop_assert_eq!(&printed(table, &again), &text);
        let [mut before, after] = [options, again].map(|options| config(table, options));
        // The printed file has an absolute path.
        if let (Some(site), true) = (before.static_files_mut(), is_serve) {
            site.root = std::path::absolute(&site.root).unwrap();
        }
        prop_assert_eq!(format!("{before:?}"), format!("{after:?}"));
    }

    #[test]
    fn bytes_as_a_file_do_not_panic(bytes in vec(any::<u8>(), 0..200)) {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("bytes");
        fs::write(&path, bytes).unwrap();
        is_accepted_or_rejected(&path)?;
    }

    #[test]
    fn lines_as_a_file_do_not_panic(text in similar_to_a_file()) {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("lines");
        fs::write(&path, text).unwrap();
        is_accepted_or_rejected(&path)?;
    }

    #[test]
    fn addresses_and_rules_do_not_panic(
        text in "(https?://|unix:|)[\\[\\]a-z0-9:./@?#;=%-]{0,20}",
        any in ".{0,20}",
    ) {
        for text in [&text, &any] {
            if let Err(reason) = address::server(text) {
                prop_assert!(!reason.is_empty());
            }
            let _ = super::rule::rule(text);
        }
    }
}
