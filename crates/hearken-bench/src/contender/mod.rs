//! Who takes part: the floors, every mechanism of Hearken through every door, and the peers.

mod floor;
mod hearken;
mod mio;
mod polling;

use std::io;

use ::hearken::mechanism::{self, TABLE, WaitCost};
use ::polling::PollMode;
use serde::{Deserialize, Serialize};

use crate::measure::{Task, measure};
use crate::pairs;
use crate::peers::Peers;

/// The largest batch that is asked for, of all for whom it can be said.
const MAX: usize = 1024;

/// The contender that does nothing but write and read.
pub(crate) const FLOOR: &str = "floor";
/// The same in C: the floor of the peers in C.
pub(crate) const FLOOR_C: &str = "floor-c";

/// How Hearken is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Door {
    /// The mechanism alone, by its type: what mio and polling are too.
    Bare,
    /// `Registry<M>`: the mechanism's type is known to the compiler.
    Registry,
    /// `Registry<Box<dyn Mechanism>>`: chosen by name at run time.
    Dyn,
    /// `EventQueue<_, M>`.
    Queue,
}

impl Door {
    const ALL: [Door; 4] = [Door::Bare, Door::Registry, Door::Dyn, Door::Queue];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Door::Bare => "bare",
            Door::Registry => "registry",
            Door::Dyn => "dyn",
            Door::Queue => "queue",
        }
    }
}

/// Whose code it is, and how it is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The floor in Rust, and peers that are linked in.
    Rust,
    /// A mechanism of Hearken.
    Hearken(Door),
    /// A program in C, with its variant.
    C(String),
}

/// One who takes part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Contender {
    /// Its name in the results.
    pub(crate) name: String,
    /// How it is started.
    pub(crate) kind: Kind,
    /// What it asks of the kernel, by Hearken's name for it: only the same are compared. None for a
    /// floor.
    pub(crate) mechanism: Option<String>,
    /// True if it says that a wait costs the same however many are registered.
    pub(crate) flat: bool,
}

/// One who does not, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Absent {
    /// Its name.
    pub(crate) name: String,
    /// Why, and what would change it.
    pub(crate) reason: String,
}

/// Peers that are linked in, and what each asks of the kernel.
const RUST: &[(&str, &str)] = &[
    ("mio", "epoll-edge"),
    ("polling-level", "epoll-level"),
    ("polling-edge", "epoll-edge"),
    ("polling-oneshot", "epoll-oneshot"),
];

/// Everyone who can take part here, and those who cannot.
pub(crate) fn everyone(peers: &Peers) -> (Vec<Contender>, Vec<Absent>) {
    let mut absent = peers.absent.clone();
    let one = |name: &str, kind, mechanism: Option<&str>| Contender {
        name: name.to_owned(),
        kind,
        mechanism: mechanism.map(str::to_owned),
        flat: false,
    };
    let mut all = vec![one(FLOOR, Kind::Rust, None)];
    for (at, spec) in TABLE.iter().flat_map(|entry| entry.variants().into_iter().enumerate()) {
        let name = spec.to_string();
        let semantics = match spec.open() {
            Ok(mechanism) => mechanism.semantics(),
            Err(reason) => {
                absent.push(Absent { name, reason: reason.to_string() });
                continue;
            }
        };
        // Options are compared through one door, which is enough to tell them apart.
        let doors = if at == 0 { &Door::ALL[..] } else { &[Door::Registry] };
        all.extend(doors.iter().map(|&door| Contender {
            flat: semantics.wait == WaitCost::Ready,
            ..one(&format!("{name}/{}", door.name()), Kind::Hearken(door), Some(&name))
        }));
    }
    all.extend(RUST.iter().map(|&(name, mechanism)| one(name, Kind::Rust, Some(mechanism))));
    for (program, variants) in &peers.programs {
        let kind = Kind::C(program.clone());
        match variants.as_slice() {
            [] => all.push(one(FLOOR_C, kind, None)),
            [only] => all.push(one(program, kind, Some(only))),
            several => all.extend(
                several.iter().map(|v| one(&format!("{program}-{v}"), kind.clone(), Some(v))),
            ),
        }
    }
    (all, absent)
}

/// Measures the contender called `name` in this process.
pub(crate) fn contend(name: &str, task: &Task) -> io::Result<()> {
    let (mut writers, readers) = pairs::make(task.descriptors, task.active, task.over)?;
    let writers = &mut writers;
    let polling = |readers, mode| polling::Polling::new(readers, mode);
    match name {
        FLOOR => measure("write and read", &mut floor::Floor { readers }, writers, task),
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
        name => {
            let unknown = || io::Error::other(format!("no contender is called \"{name}\""));
            let (spec, door) = name.rsplit_once('/').ok_or_else(unknown)?;
            let door =
                Door::ALL.into_iter().find(|known| known.name() == door).ok_or_else(unknown)?;
            let version = version("hearken");
            let measure = hearken::Measure { version: &version, door, readers, writers, task };
            match door {
                Door::Dyn => {
                    let spec = mechanism::find(spec).map_err(io::Error::other)?;
                    measure.run(spec.open()?)
                }
                _ => mechanism::visit(spec, measure).map_err(io::Error::other)?,
            }
        }
    }
}

/// The crate called `name`, with the version that it was built with.
fn version(name: &str) -> String {
    let lock = include_str!("../../../../Cargo.lock");
    let wanted = format!("name = \"{name}\"");
    let mut after = lock.lines().skip_while(|line| *line != wanted);
    let version = after.nth(1).and_then(|line| line.split('"').nth(1));
    format!("{name} {}", version.unwrap_or("unknown"))
}
