//! Peers written in C, compiled now if their headers and libraries are installed, or found in a
//! directory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::contender::{BASELINE_C, Unavailable};

/// A peer: its source code, libraries and variants. Variants have Hearken's names for the kernel
/// interfaces that they use.
struct Source {
    name: &'static str,
    text: &'static str,
    libraries: &'static [&'static str],
    variants: &'static [&'static str],
}

const HEADER: &str = include_str!("../peers/peer.h");

const SOURCES: &[Source] = &[
    Source {
        name: BASELINE_C,
        text: include_str!("../peers/baseline.c"),
        libraries: &[],
        variants: &[],
    },
    Source {
        name: "hearken-c",
        text: include_str!("../peers/hearken.c"),
        libraries: &["-lhearken"],
        variants: &["epoll-edge", "epoll-level", "poll", "uring-poll"],
    },
    Source {
        name: "libevent",
        text: include_str!("../peers/libevent.c"),
        libraries: &["-levent_core"],
        variants: &["epoll-edge", "epoll-level", "poll", "select"],
    },
    Source {
        name: "libev",
        text: include_str!("../peers/libev.c"),
        libraries: &["-lev"],
        variants: &["epoll-level", "poll", "select"],
    },
    Source {
        name: "libuv",
        text: include_str!("../peers/libuv.c"),
        libraries: &["-luv"],
        variants: &["epoll-level"],
    },
];

/// The compiled peers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peers {
    /// Directory of the programs.
    pub(crate) directory: PathBuf,
    /// Available programs with their variants.
    pub(crate) programs: Vec<(String, Vec<String>)>,
    /// Peers that are not available.
    pub(crate) unavailable: Vec<Unavailable>,
}

impl Peers {
    /// Compiles the peers into `directory`. Peers that do not compile are unavailable, which is not an error.
    pub(crate) fn build(directory: &Path) -> io::Result<Peers> {
        fs::write(directory.join("peer.h"), HEADER)?;
        let mut peers = Peers { directory: directory.to_owned(), ..Peers::default() };
        for source in SOURCES {
            match source.compile(directory) {
                Ok(()) => peers.programs.push(source.row()),
                Err(reason) => {
                    peers.unavailable.push(Unavailable { name: source.name.into(), reason });
                }
            }
        }
        Ok(peers)
    }

    /// Finds the peers that an earlier `build` compiled into `directory`.
    pub(crate) fn find(directory: &Path) -> Peers {
        let mut peers = Peers { directory: directory.to_owned(), ..Peers::default() };
        for source in SOURCES {
            let program = directory.join(source.name);
            if program.exists() {
                peers.programs.push(source.row());
            } else {
                let reason =
                    format!("cannot find '{}': run `dispatch peers` first", program.display());
                peers.unavailable.push(Unavailable { name: source.name.into(), reason });
            }
        }
        peers
    }
}

impl Source {
    fn row(&self) -> (String, Vec<String>) {
        (self.name.to_owned(), self.variants.iter().map(ToString::to_string).collect())
    }

    fn compile(&self, directory: &Path) -> Result<(), String> {
        let program = directory.join(self.name);
        let file = program.with_extension("c");
        fs::write(&file, self.text)
            .map_err(|error| format!("cannot write '{}': {error}", file.display()))?;
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let output = Command::new(&compiler)
            .args(["-O2", "-o"])
            .arg(&program)
            .arg(&file)
            .args(self.libraries)
            .output()
            .map_err(|error| format!("cannot run C compiler '{}': {error}", compiler.display()))?;
        if output.status.success() {
            return Ok(());
        }
        let stderr = String::from_utf8_lossy(&output.stderr);
        let first = stderr.lines().find(|line| line.contains("error") || line.contains("cannot"));
        let first = first.or(stderr.lines().next()).unwrap_or("the C compiler failed");
        Err(match self.libraries {
            [] => first.to_owned(),
            _ => format!(
                "not installed ({first}): apt-get install libevent-dev libev-dev libuv1-dev; \
                 scripts/install-c for Hearken's"
            ),
        })
    }
}
