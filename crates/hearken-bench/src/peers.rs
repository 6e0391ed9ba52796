//! The peers in C: compiled here and now where their headers and libraries are, or found where an
//! earlier run put them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::contender::{Absent, FLOOR_C};

/// A peer's program: its source, its libraries, and the variants that it has, by Hearken's names for
/// what they ask of the kernel.
struct Source {
    name: &'static str,
    text: &'static str,
    libraries: &'static [&'static str],
    variants: &'static [&'static str],
}

const HEADER: &str = include_str!("../peers/peer.h");

const SOURCES: &[Source] = &[
    Source { name: FLOOR_C, text: include_str!("../peers/floor.c"), libraries: &[], variants: &[] },
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

/// The peers' programs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peers {
    /// Where they are.
    pub(crate) directory: PathBuf,
    /// Those there are, with their variants.
    pub(crate) programs: Vec<(String, Vec<String>)>,
    /// Those that could not be built.
    pub(crate) absent: Vec<Absent>,
}

impl Peers {
    /// Compiles them into `directory`. What cannot be compiled is absent, which is no error.
    pub(crate) fn build(directory: &Path) -> io::Result<Peers> {
        fs::write(directory.join("peer.h"), HEADER)?;
        let mut peers = Peers { directory: directory.to_owned(), ..Peers::default() };
        for source in SOURCES {
            match source.compile(directory) {
                Ok(()) => peers.programs.push(source.row()),
                Err(reason) => peers.absent.push(Absent { name: source.name.into(), reason }),
            }
        }
        Ok(peers)
    }

    /// Those that an earlier `build` left in `directory`.
    pub(crate) fn find(directory: &Path) -> Peers {
        let mut peers = Peers { directory: directory.to_owned(), ..Peers::default() };
        for source in SOURCES {
            let program = directory.join(source.name);
            if program.exists() {
                peers.programs.push(source.row());
            } else {
                let reason = format!("{} is not there: run `dispatch peers`", program.display());
                peers.absent.push(Absent { name: source.name.into(), reason });
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
        fs::write(&file, self.text).map_err(|e| format!("writing {}: {e}", file.display()))?;
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let output = Command::new(&compiler)
            .args(["-O2", "-o"])
            .arg(&program)
            .arg(&file)
            .args(self.libraries)
            .output()
            .map_err(|e| format!("no C compiler: {}: {e}", compiler.display()))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let first = said.lines().find(|line| line.contains("error") || line.contains("cannot"));
        let first = first.or(said.lines().next()).unwrap_or("the C compiler failed");
        Err(match self.libraries {
            [] => first.to_owned(),
            _ => format!(
                "not installed ({first}): apt-get install libevent-dev libev-dev libuv1-dev"
            ),
        })
    }
}
