//! A proxy's settings, by the command line, by a file, and there and back.

use std::fs;
use std::path::Path;

use clap::builder::PossibleValue;
use hearken_server::proxy::config::{Active, Server, To, Upstreams};
use hearken_server::runtime::network::Network;
use hearken_server::{Config, proxy};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use tempfile::TempDir;

use super::keys::{KEYS, Key, Kind, TABLES};
use super::perhaps::Perhaps;
use super::settings::{Settings, settle};
use super::{config, option, print, to};

fn settled(args: &[&str]) -> Result<Settings, String> {
    let matches =
        option::command().try_get_matches_from(args).map_err(|error| error.to_string())?;
    settle(&matches).map_err(|failure| failure.error.to_string())
}

/// The name of a proxy that was not given one, which is random otherwise.
const NAME: &str = "any-name";

fn config_of(mut settings: Settings) -> Config {
    settings.args.fields.via.get_or_insert_with(|| Perhaps(Some(NAME.to_owned())));
    config::config(settings.args)
}

fn configured(args: &[&str]) -> Config {
    config_of(settled(args).unwrap_or_else(|error| panic!("{args:?}: {error}")))
}

fn upstreams(args: &[&str]) -> Upstreams {
    match &configured(args).first_proxy().unwrap().to {
        To::Upstreams(upstreams) => upstreams.clone(),
        To::Anywhere(_) => panic!("a forward proxy"),
    }
}

fn printed(settings: &Settings) -> String {
    print::print(settings).map_err(|failure| failure.error.to_string()).unwrap()
}

/// Two values of each option that are not its default.
const VALUES: &[(&str, &str, &str)] = &[
    ("listen", "[::1]:80", "0.0.0.0:0"),
    ("proxy-protocol", "all", "10.0.0.0/8"),
    ("half-close", "left", "left"),
    ("events", "poll", "epoll-edge"),
    ("rt-queue", "7", "900"),
    ("workers", "2", "7"),
    ("accept-limit", "all", "1"),
    ("defer-accept", "1s", "90"),
    ("io", "wait-first", "wait-first"),
    ("interest", "once", "every-state"),
    ("no-splice", "yes", "yes"),
    ("meter-waits", "yes", "yes"),
    ("policy", "hash:field=X-Key", "random-two"),
    ("keep", "0", "17"),
    ("max-requests", "1", "99"),
    ("queue", "0", "5000"),
    ("tries", "1", "9"),
    ("slow-start", "10s", "1.5m"),
    ("resolve-every", "0", "7ms"),
    ("send-proxy-protocol", "v1", "v2"),
    ("to", "http://a:9000;weight=3;backup", "unix:/run/a b"),
    ("passive", "off", "1/250ms"),
    ("check-path", "/healthz?a=b", "/"),
    ("check-host", "example.org", "[::1]:8080"),
    ("check-every", "1s", "250ms"),
    ("check-timeout", "1s", "3"),
    ("check-fall", "1", "8"),
    ("check-rise", "1", "8"),
    ("check-status", "204", "200"),
    ("allow", ".example.org", "10.0.0.0/8"),
    ("deny", "::1", "secret.example.org"),
    ("connect-port", "8443", "1"),
    ("head-timeout", "1s", "2"),
    ("body-timeout", "1s", "2"),
    ("upload-timeout", "1s", "2"),
    ("idle-timeout", "1s", "2"),
    ("send-timeout", "1s", "2"),
    ("queue-timeout", "1s", "2"),
    ("connect-timeout", "1s", "2"),
    ("server-send-timeout", "1s", "2"),
    ("response-timeout", "1s", "2"),
    ("response-body-timeout", "1s", "2"),
    ("whole-timeout", "1s", "2"),
    ("tunnel-timeout", "1s", "2"),
    ("keep-timeout", "1s", "2"),
    ("grace", "0", "2"),
    ("max-connections", "1", "100000"),
    ("min-rate", "0", "1M"),
    ("max-head", "8k", "65536"),
    ("max-fields", "1", "1000"),
    ("max-target", "64", "1k"),
    ("max-body", "0", "8M"),
    ("via", "none", "edge-1:80"),
    ("x-forwarded", "append", "remove"),
    ("forwarded", "keep", "replace"),
    ("host", "server", "server"),
    ("access-log", "-", "/tmp/it's a \"log\""),
    ("log-format", "json", "json"),
    ("admin", "127.0.0.1:9090", "[::]:0"),
];

/// What an option needs beside it.
fn beside(key: &Key) -> &'static [&'static str] {
    match (key.of, key.flag) {
        (_, "to") => &[],
        (Kind::Forward, _) => &["--forward"],
        (Kind::Checked, _) => &["--to=b:1", "--check-path=/"],
        _ => &["--to=b:1"],
    }
}

#[test]
fn the_defaults_are_those_of_the_server() {
    let server = || vec![Server::new(to::address("a:1").unwrap())];
    let ours = configured(&["--to", "a:1"]);
    let mut theirs = proxy::Config::new(To::Upstreams(Upstreams::new(server())));
    NAME.clone_into(&mut theirs.fields.via);
    let mut theirs = Config::proxy(theirs);
    theirs.loops.on_limit = ours.loops.on_limit;
    assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
    let active = upstreams(&["--to", "a:1", "--check-path", "/"]).active;
    assert_eq!(format!("{active:?}"), format!("{:?}", Some(Active::default())));
}

#[test]
fn every_option_reaches_the_server() {
    for key in KEYS {
        // It is of the process.
        if key.flag == "rt-queue" {
            continue;
        }
        let (_, one, other) = VALUES.iter().find(|(flag, ..)| *flag == key.flag).unwrap();
        let without = if key.flag == "to" { &["--to=b:1"] } else { beside(key) };
        let default = format!("{:?}", configured(without));
        for value in [one, other] {
            let option = format!("--{}={value}", key.flag);
            let with = configured(&[beside(key), &[&option]].concat());
            assert_ne!(format!("{with:?}"), default, "{option}");
        }
    }
}

#[test]
fn the_command_line_wins_over_the_file() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("proxy.toml");
    let file = "splice = false\nmeter-waits = true\nproxy-protocol = ['10.0.0.0/8']\nworkers = 3\n[[upstreams.server]]\nto = 'a:1'\n\
                [[upstreams.server]]\nto = 'b:1'\n[upstreams]\nqueue = 3\n[health]\npath = '/'\nrise = 7\n\
                [log]\nfile = 'log'\n";
    fs::write(&path, file).unwrap();
    let config = path.to_str().unwrap();
    let with = |args: &[&str]| configured(&[&["--config", config], args].concat());
    let servers = |config: &mut Config| match &config.first_proxy().unwrap().to {
        To::Upstreams(upstreams) => upstreams.servers.len(),
        To::Anywhere(_) => 0,
    };
    let figures = |config: &mut Config| {
        let loops = (config.loops.workers.get(), config.loops.meter_waits);
        (loops, config.first_proxy().unwrap().splice, servers(config))
    };
    let mut plain = with(&[]);
    assert_eq!(figures(&mut plain), ((3, true), false, 2));
    assert_eq!(plain.access_log, Some(dir.path().join("log")));
    assert_eq!(plain.proxy_protocol, ["10.0.0.0/8".parse().unwrap()]);
    let mut over = with(&["--workers=1", "--no-splice=no", "--meter-waits=no", "--to=c:1"]);
    assert_eq!(figures(&mut over), ((1, false), true, 1));
    assert_eq!(with(&["--access-log=none"]).access_log, None);
    assert_eq!(with(&["--proxy-protocol=none"]).proxy_protocol, []);
    // What has no place beside it goes, too.
    assert_eq!(servers(&mut with(&["--forward"])), 0);
    assert!(upstreams(&["--config", config, "--check-path=none"]).active.is_none());
}

#[test]
fn networks_are_given_as_a_list() {
    let networks = |args: &[&str]| configured(&[&["--to", "a:1"], args].concat()).proxy_protocol;
    let both = ["10.0.0.0/8", "2001:db8::1"].map(|network| network.parse().unwrap());
    assert_eq!(networks(&[]), []);
    assert_eq!(networks(&["--proxy-protocol", "10.0.0.0/8,2001:db8::1"]), both);
    let several = ["--proxy-protocol", "10.0.0.0/8", "--proxy-protocol", "2001:db8::1"];
    assert_eq!(networks(&several), both);
    assert_eq!(networks(&["--proxy-protocol", "all"]), Network::ALL);
}

/// The rows of the table in docs/proxy.md.
fn row(key: &Key) -> String {
    let command = option::command();
    let arg = option::find(&command, key.flag).unwrap();
    let default = match option::default(arg) {
        Some(_) if key.inverse => "`true`".to_owned(),
        Some(default) if option::is_switch(arg) => format!("`{}`", default == "yes"),
        Some(default) => format!("`{}`", option::typed(default)),
        None => String::new(),
    };
    let help = arg.get_help().unwrap().to_string();
    let help = if key.about.is_empty() { &help } else { key.about };
    let table = if key.table.is_empty() { "" } else { "." };
    let known: Vec<_> = arg.get_possible_values();
    let known: Vec<_> = known.iter().map(PossibleValue::get_name).collect();
    let known = match option::is_switch(arg) || known.is_empty() {
        true => String::new(),
        false => format!(": {}", known.join(", ")),
    };
    format!("| `{}{table}{}` | `--{}` | {default} | {help}{known} |", key.table, key.name, key.flag)
}

#[test]
fn the_guide_has_every_setting() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/proxy.md");
    let guide = fs::read_to_string(path).unwrap();
    let missing: Vec<_> =
        KEYS.iter().map(row).filter(|row| !guide.contains(&format!("{row}\n"))).collect();
    assert!(missing.is_empty(), "docs/proxy.md lacks:\n{}", missing.join("\n"));
}

/// Options of one kind of proxy, some of them with a value.
fn options() -> impl Strategy<Value = Vec<String>> {
    let fit = |forward: bool| -> Vec<&'static Key> {
        let of = if forward { [Kind::Both, Kind::Forward] } else { [Kind::Both, Kind::Reverse] };
        let of = move |key: &&Key| {
            of.contains(&key.of) || (key.flag == "keep" && key.table != "forward")
        };
        // One key for --keep.
        KEYS.iter().filter(of).filter(|key| key.flag != "to" && key.flag != "keep").collect()
    };
    (any::<bool>(), any::<bool>(), vec("[a-z]{1,8}:[1-9][0-9]{0,3}", 1..5))
        .prop_flat_map(move |(forward, checked, servers)| {
            let mut fixed: Vec<String> = match forward {
                true => vec!["--forward".to_owned()],
                false => {
                    servers.iter().enumerate().map(|(n, it)| format!("--to={n}{it}")).collect()
                }
            };
            let mut keys = fit(forward);
            if checked && !forward {
                fixed.push("--check-path=/well".to_owned());
                keys.extend(KEYS.iter().filter(|key| key.of == Kind::Checked));
                keys.retain(|key| key.flag != "check-path");
            }
            let all = keys.len();
            (Just(fixed), subsequence(keys, 0..=all), vec(any::<bool>(), all))
        })
        .prop_map(|(fixed, keys, which)| {
            let chosen = keys.iter().zip(which).map(|(key, which)| {
                let (flag, one, other) =
                    VALUES.iter().find(|(flag, ..)| *flag == key.flag).unwrap();
                format!("--{flag}={}", if which { one } else { other })
            });
            fixed.into_iter().chain(chosen).collect()
        })
}

/// Text that is much like a file.
fn like_a_file() -> impl Strategy<Value = String> {
    let tables: Vec<&str> = TABLES.iter().map(|(table, _)| *table).collect();
    let names: Vec<&str> =
        KEYS.iter().map(|key| key.name).chain(["to", "weight", "backup"]).collect();
    let values: Vec<String> = VALUES
        .iter()
        .flat_map(|(_, one, other)| [one, other])
        .map(|value| option::typed(value).to_string())
        .chain(
            ["true", "[]", "[1, 'a', true]", "{}", "-1", "0x7f", "1e9", "nan", "1979-05-27", "''"]
                .map(str::to_owned),
        )
        .collect();
    let line = prop_oneof![
        3 => (select(names), select(values)).prop_map(|(name, value)| format!("{name} = {value}\n")),
        1 => select(tables).prop_map(|table| format!("[{table}]\n")),
        1 => Just("[[upstreams.server]]\n".to_owned()),
        1 => "\\PC{0,12}\n",
    ];
    vec(line, 0..12).prop_map(|lines| lines.concat())
}

/// It is right, or each line of what is said begins with the file's name.
fn passes_or_is_refused(path: &Path) -> Result<(), TestCaseError> {
    let path = path.to_str().unwrap();
    match settled(&["--config", path]) {
        Ok(settings) => {
            let text = printed(&settings);
            fs::write(path, &text).unwrap();
            let again = settled(&["--config", path]).map_err(TestCaseError::fail)?;
            prop_assert_eq!(printed(&again), text);
        }
        Err(said) => {
            for line in said.split("\nhearken: ") {
                prop_assert!(
                    line.starts_with(&format!("{path}:")) && !line.contains('\n'),
                    "{}",
                    said
                );
            }
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn what_is_printed_is_read_back(args in options()) {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let settings = settled(&args).map_err(TestCaseError::fail)?;
        let text = printed(&settings);
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("proxy.toml");
        fs::write(&path, &text).unwrap();
        let again = settled(&["--config", path.to_str().unwrap()]).map_err(TestCaseError::fail)?;
        prop_assert_eq!(&printed(&again), &text);
        let [before, after] = [settings, again].map(|settings| format!("{:?}", config_of(settings)));
        prop_assert_eq!(before, after);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in vec(any::<u8>(), 0..200)) {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("any");
        fs::write(&path, bytes).unwrap();
        passes_or_is_refused(&path)?;
    }

    #[test]
    fn no_text_makes_it_panic(text in like_a_file()) {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("like");
        fs::write(&path, text).unwrap();
        passes_or_is_refused(&path)?;
    }

    #[test]
    fn no_address_makes_it_panic(text in "(https?://|unix:|)[\\[\\]a-z0-9:./@?#;=%-]{0,20}", any in ".{0,20}") {
        for text in [&text, &any] {
            if let Err(what) = to::server(text) {
                prop_assert!(!what.is_empty());
            }
            let _ = super::rule::rule(text);
        }
    }
}
