//! Control groups (cgroup v2): lookup and accounting.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use procfs::process::Process;

/// Maximum number of directories that are searched or summed up.
const MAX_DIRECTORIES: usize = 20_000;

/// A cgroup.
#[derive(Debug)]
pub(crate) struct Cgroup {
    path: PathBuf,
}

/// CPU time of all current and past members of a cgroup, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuTime {
    pub(crate) cpu_ns: u64,
    pub(crate) user_ns: u64,
    pub(crate) system_ns: u64,
}

/// CPU time since a start. Handles a cgroup that is removed and created again, which resets its
/// accounting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuMeter {
    base: CpuTime,
    last: CpuTime,
    previous: CpuTime,
}

impl CpuMeter {
    /// Starts at the given value.
    pub(crate) fn new(now: CpuTime) -> CpuMeter {
        CpuMeter { base: now, last: now, previous: CpuTime::default() }
    }

    /// Returns the usage up to `now`, or up to the last known value.
    pub(crate) fn used(&mut self, now: Option<CpuTime>) -> CpuTime {
        if let Some(now) = now {
            if now.cpu_ns < self.last.cpu_ns {
                self.previous = self.sum();
                self.base = CpuTime::default();
            }
            self.last = now;
        }
        self.sum()
    }

    fn sum(&self) -> CpuTime {
        let sum = |of: fn(&CpuTime) -> u64| {
            of(&self.previous) + of(&self.last).saturating_sub(of(&self.base))
        };
        CpuTime {
            cpu_ns: sum(|cpu| cpu.cpu_ns),
            user_ns: sum(|cpu| cpu.user_ns),
            system_ns: sum(|cpu| cpu.system_ns),
        }
    }
}

/// Returns the mount point of the cgroup file system.
pub(crate) fn find_mount() -> Result<PathBuf, String> {
    let mounts = Process::myself()
        .and_then(|this| this.mountinfo())
        .map_err(|error| format!("cannot read /proc/self/mountinfo: {error}"))?;
    let mount = mounts.into_iter().find(|mount| mount.fs_type == "cgroup2");
    mount.map(|mount| mount.mount_point).ok_or_else(|| {
        "no cgroup2 file system is mounted (mount -t cgroup2 none /sys/fs/cgroup)".to_owned()
    })
}

impl Cgroup {
    /// Opens the cgroup with the given path: absolute, or relative to the mount point `root`.
    pub(crate) fn from_path(root: &Path, path: &Path) -> Result<Cgroup, String> {
        let beneath = root.join(path.strip_prefix("/").unwrap_or(path));
        let whole = path.is_absolute() && path.is_dir();
        let named = if whole { path } else { &beneath };
        let path = named.canonicalize().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => format!("cgroup {} does not exist", beneath.display()),
            _ => format!("{}: {error}", named.display()),
        })?;
        let root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
        if !path.starts_with(&root) || !path.join("cgroup.controllers").exists() {
            let path = path.display();
            let root = root.display();
            return Err(format!("{path} is not a cgroup (cgroup v2 is mounted at {root})"));
        }
        Ok(Cgroup { path })
    }

    /// Finds the cgroup of a systemd unit below `root`.
    pub(crate) fn from_unit(root: &Path, unit: &str) -> Result<Cgroup, String> {
        let mut found: Vec<PathBuf> = subtree(root)
            .into_iter()
            .filter(|path| path.file_name().is_some_and(|name| name == unit))
            .collect();
        // System units take precedence over user units.
        if let Some(own) = found.iter().position(|path| path.starts_with(root.join("system.slice")))
        {
            found = vec![found.swap_remove(own)];
        }
        match found.as_slice() {
            [path] => Cgroup::from_path(root, path),
            [] => match query_systemd(unit) {
                Some(path) => Cgroup::from_path(root, &path),
                None => Err(format!("unit {unit} is not running: it has no cgroup")),
            },
            [one, other, ..] => {
                let (one, other) = (one.display(), other.display());
                Err(format!(
                    "the unit is ambiguous ({one} and {other}); specify the path of its cgroup"
                ))
            }
        }
    }

    /// Returns the path of its directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens its directory.
    pub(crate) fn open_dir(&self) -> io::Result<File> {
        File::open(&self.path)
    }

    /// Returns the members of the cgroup and its descendants.
    pub(crate) fn members(&self) -> io::Result<Vec<i32>> {
        let mut all = Vec::new();
        for (index, path) in subtree(&self.path).into_iter().enumerate() {
            match fs::read_to_string(path.join("cgroup.procs")) {
                Ok(text) => all.extend(text.lines().filter_map(|line| line.parse::<i32>().ok())),
                Err(error) if index == 0 => return Err(error),
                // The cgroup was removed in the meantime, or it is threaded.
                Err(_) => {}
            }
        }
        // The kernel reports 0 for processes outside this pid namespace.
        all.retain(|&pid| pid > 0);
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }

    /// Reads `cpu.stat`.
    pub(crate) fn cpu_time(&self) -> io::Result<CpuTime> {
        let text = fs::read_to_string(self.path.join("cpu.stat"))?;
        let micros = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            let value: Option<u64> = line.and_then(|value| value.trim().parse().ok());
            value
                .map(|value| value.saturating_mul(1_000))
                .ok_or_else(|| io::Error::other(format!("no {name} in cpu.stat")))
        };
        Ok(CpuTime {
            cpu_ns: micros("usage_usec")?,
            user_ns: micros("user_usec")?,
            system_ns: micros("system_usec")?,
        })
    }

    /// Reads `memory.current` or `memory.peak` (the maximum since the creation of the cgroup).
    pub(crate) fn read_memory(&self, which: &str) -> io::Result<u64> {
        let text = fs::read_to_string(self.path.join(which))?;
        text.trim().parse().map_err(io::Error::other)
    }
}

/// Returns a cgroup and its descendants, in breadth-first order. Does not follow symbolic links.
fn subtree(path: &Path) -> Vec<PathBuf> {
    let mut found = vec![path.to_owned()];
    let mut next = 0;
    while next < found.len() && found.len() < MAX_DIRECTORIES {
        let entries = fs::read_dir(&found[next]);
        next += 1;
        for entry in entries.into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                found.push(entry.path());
            }
        }
    }
    found
}

/// Queries systemd for the cgroup of a unit; none without systemd or without such a unit.
fn query_systemd(unit: &str) -> Option<PathBuf> {
    let output = Command::new("systemctl")
        .args(["show", "-p", "ControlGroup", "--value", "--", unit])
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let path = text.trim();
    (output.status.success() && path.starts_with('/') && path != "/").then(|| path.into())
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// Creates a simulated hierarchy.
    fn simulated(groups: &[(&str, &str)]) -> TempDir {
        let root = TempDir::new().unwrap();
        for (path, processes) in [("", "")].iter().chain(groups) {
            let dir = root.path().join(path);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("cgroup.controllers"), "cpu memory\n").unwrap();
            fs::write(dir.join("cgroup.procs"), processes).unwrap();
        }
        root
    }

    #[test]
    fn path_is_absolute_or_relative_to_the_mount_point() {
        let root = simulated(&[("web", "7\n"), ("web/one", "9\n8\n0\n"), ("other", "5\n")]);
        let whole = root.path().join("web");
        for path in [whole.as_path(), Path::new("web"), Path::new("/web"), Path::new("web/")] {
            let group = Cgroup::from_path(root.path(), path).unwrap();
            assert_eq!(group.path(), whole.canonicalize().unwrap(), "{}", path.display());
            assert_eq!(group.members().unwrap(), [7, 8, 9]);
        }
        let one = Cgroup::from_path(root.path(), Path::new("web/one")).unwrap();
        assert_eq!(one.members().unwrap(), [8, 9]);
    }

    #[test]
    fn rejects_paths_that_are_not_cgroups() {
        let root = simulated(&[]);
        fs::create_dir(root.path().join("v1")).unwrap();
        fs::write(root.path().join("v1/cgroup.procs"), "").unwrap();
        let error = |path: &str| Cgroup::from_path(root.path(), Path::new(path)).unwrap_err();
        assert!(error("no/such").contains("does not exist"), "{}", error("no/such"));
        assert!(error("v1").contains("is not a cgroup"), "{}", error("v1"));
        assert!(error("/usr").contains("is not a cgroup"), "{}", error("/usr"));
        std::os::unix::fs::symlink("/", root.path().join("out")).unwrap();
        assert!(error("out").contains("is not a cgroup"), "{}", error("out"));
    }

    #[test]
    fn finds_units_by_name() {
        let root = simulated(&[
            ("system.slice", ""),
            ("system.slice/nginx.service", "3\n"),
            ("user.slice/user-1.slice/nginx.service", "4\n"),
            ("system.slice/system-web.slice/web@1.service", "5\n"),
            ("user.slice/user-1.slice/twice.service", ""),
            ("user.slice/user-2.slice/twice.service", ""),
        ]);
        let processes = |unit| Cgroup::from_unit(root.path(), unit).unwrap().members().unwrap();
        assert_eq!(processes("nginx.service"), [3]);
        assert_eq!(processes("web@1.service"), [5]);
        let twice = Cgroup::from_unit(root.path(), "twice.service").unwrap_err();
        assert!(twice.starts_with("the unit is ambiguous"), "{twice}");
        let none = Cgroup::from_unit(root.path(), "no-such-unit-anywhere.service").unwrap_err();
        assert!(none.contains("unit no-such-unit-anywhere.service is not running"), "{none}");
    }

    #[test]
    fn usage_continues_after_the_cgroup_is_created_again() {
        let cpu = |ns| CpuTime { cpu_ns: ns, user_ns: ns / 2, system_ns: ns / 2 };
        let mut since = CpuMeter::new(cpu(100));
        assert_eq!(since.used(Some(cpu(140))), cpu(40));
        assert_eq!(since.used(None), cpu(40));
        assert_eq!(since.used(Some(cpu(10))), cpu(50));
        assert_eq!(since.used(Some(cpu(30))), cpu(70));
    }

    #[test]
    fn reads_accounting_or_returns_an_error() {
        let root = simulated(&[("web", "")]);
        let group = Cgroup::from_path(root.path(), Path::new("web")).unwrap();
        assert!(group.cpu_time().is_err() && group.read_memory("memory.current").is_err());
        let stat = "usage_usec 12\nuser_usec 5\nsystem_usec 7\nnice_usec 0\n";
        fs::write(group.path().join("cpu.stat"), stat).unwrap();
        fs::write(group.path().join("memory.current"), "4096\n").unwrap();
        let cpu = CpuTime { cpu_ns: 12_000, user_ns: 5_000, system_ns: 7_000 };
        assert_eq!(group.cpu_time().unwrap(), cpu);
        assert_eq!(group.read_memory("memory.current").unwrap(), 4096);
        fs::write(group.path().join("cpu.stat"), "usage_usec -1\nuser_usec x\n").unwrap();
        fs::write(group.path().join("memory.current"), "max\n").unwrap();
        assert!(group.cpu_time().is_err() && group.read_memory("memory.current").is_err());
    }
}
