//! Contenders: the baselines, every mechanism of Hearken through every API, and the peers.

mod baseline;
mod hearken;
mod mio;
mod polling;
mod sigio;

use std::io;

use ::hearken::mechanism::{self, TABLE, WaitCost};
use ::polling::PollMode;
use serde::{Deserialize, Serialize};

use crate::measure::{Task, measure};
use crate::pairs;
use crate::peers::Peers;

/// Maximum number of events per wait, for contenders where it is configurable.
const MAX_EVENTS: usize = 1024;

/// Name of the contender that only writes and reads.
pub(crate) const BASELINE: &str = "baseline";
/// Name of the same contender in C: the baseline of the peers in C.
pub(crate) const BASELINE_C: &str = "baseline-c";

/// A Hearken API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Api {
    /// The mechanism with a static type, comparable to mio and polling.
    Bare,
    /// `Registry<M>` with a static mechanism type.
    Registry,
    /// `Registry<Box<dyn Mechanism>>`, selected by name at run time.
    Dyn,
    /// `EventQueue<_, M>`.
    Queue,
    /// `Poller`, which the C library wraps.
    Poller,
}

impl Api {
    const ALL: [Api; 5] = [Api::Bare, Api::Registry, Api::Dyn, Api::Queue, Api::Poller];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Api::Bare => "bare",
            Api::Registry => "registry",
            Api::Dyn => "dyn",
            Api::Queue => "queue",
            Api::Poller => "poller",
        }
    }
}

/// The kind of a contender, which determines how it is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A baseline or peer in Rust, linked into this program.
    Rust,
    /// A mechanism of Hearken.
    Hearken(Api),
    /// A program in C.
    C(String),
}

/// A contender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Contender {
    /// Name in the results.
    pub(crate) name: String,
    /// Kind.
    pub(crate) kind: Kind,
    /// Kernel interface by Hearken's name, or none for a baseline. Only contenders with the same one are
    /// compared.
    pub(crate) mechanism: Option<String>,
    /// Whether the cost of a wait is documented to be independent of the number of registered descriptors.
    pub(crate) flat: bool,
}

/// A contender that is not available.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Unavailable {
    /// Name.
    pub(crate) name: String,
    /// Reason, and how to make the contender available.
    pub(crate) reason: String,
}

/// Peers in Rust and the kernel interface that each uses.
const RUST: &[(&str, &str)] = &[
    ("mio", "epoll-edge"),
    ("polling-level", "epoll-level"),
    ("polling-edge", "epoll-edge"),
    ("polling-oneshot", "epoll-oneshot"),
    ("sigio-handler", "sigio"),
];

/// Returns the available and the unavailable contenders.
pub(crate) fn contenders(peers: &Peers) -> (Vec<Contender>, Vec<Unavailable>) {
    let mut unavailable = peers.unavailable.clone();
    let contender = |name: &str, kind, mechanism: Option<&str>| Contender {
        name: name.to_owned(),
        kind,
        mechanism: mechanism.map(str::to_owned),
        flat: false,
    };
    let mut all = vec![contender(BASELINE, Kind::Rust, None)];
    for (at, spec) in TABLE.iter().flat_map(|entry| entry.variants().into_iter().enumerate()) {
        let name = spec.to_string();
        let semantics = match spec.open() {
            Ok(mechanism) => mechanism.semantics(),
            Err(reason) => {
                unavailable.push(Unavailable { name, reason: reason.to_string() });
                continue;
            }
        };
        // Options are measured through one API, which suffices to compare them.
        let apis = if at == 0 { &Api::ALL[..] } else { &[Api::Registry] };
        all.extend(apis.iter().map(|&api| Contender {
            flat: semantics.wait == WaitCost::Ready,
            ..contender(&format!("{name}/{}", api.name()), Kind::Hearken(api), Some(&name))
        }));
    }
    all.extend(RUST.iter().map(|&(name, mechanism)| contender(name, Kind::Rust, Some(mechanism))));
    for (program, variants) in &peers.programs {
        let kind = Kind::C(program.clone());
        match variants.as_slice() {
            [] => all.push(contender(BASELINE_C, kind, None)),
            [only] => all.push(contender(program, kind, Some(only))),
            variants => all.extend(
                variants
                    .iter()
                    .map(|v| contender(&format!("{program}-{v}"), kind.clone(), Some(v))),
            ),
        }
    }
    (all, unavailable)
}

/// Measures the contender with this name in the current process.
pub(crate) fn measure_contender(name: &str, task: &Task) -> io::Result<()> {
    let (mut writers, readers) =
        pairs::create(task.descriptors, task.active, task.descriptor_type)?;
    let writers = &mut writers;
    let polling = |readers, mode| polling::Polling::new(readers, mode);
    match name {
        BASELINE => measure("write and read", &mut baseline::Baseline { readers }, writers, task),
        "mio" => measure(&version("mio"), &mut mio::Mio::new(readers)?, writers, task),
        "polling-level" => {
            measure(&version("polling"), &mut polling(readers, PollMode::Level)?, writers, task)
        }
        "polling-edge" => {
            measure(&version("polling"), &mut polling(readers, PollMode::Edge)?, writers, task)
        }
        "polling-oneshot" => {
            measure(&version("polling"), &mut polling(readers, PollMode::Oneshot)?, writers, task)
        }
        "sigio-handler" => measure("SIGIO", &mut sigio::Sigio::new(readers)?, writers, task),
        name => {
            let unknown =
                || io::Error::other(format!("unknown contender '{name}' (see `dispatch list`)"));
            let (spec, api) = name.rsplit_once('/').ok_or_else(unknown)?;
            let api = Api::ALL.into_iter().find(|known| known.name() == api).ok_or_else(unknown)?;
            let version = version("hearken");
            let measure = hearken::Measure { version: &version, api, readers, writers, task };
            match api {
                Api::Poller => measure.run_poller(spec),
                Api::Dyn => {
                    let spec = mechanism::find(spec).map_err(io::Error::other)?;
                    measure.run(spec.open()?)
                }
                _ => mechanism::visit(spec, measure).map_err(io::Error::other)?,
            }
        }
    }
}

/// Returns the name and the version of a dependency of this build.
fn version(name: &str) -> String {
    let lock = include_str!("../../../../Cargo.lock");
    let wanted = format!("name = \"{name}\"");
    let mut after = lock.lines().skip_while(|line| *line != wanted);
    let version = after.nth(1).and_then(|line| line.split('"').nth(1));
    format!("{name} {}", version.unwrap_or("unknown"))
}
