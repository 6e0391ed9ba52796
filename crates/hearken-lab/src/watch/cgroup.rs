//! Control groups of version 2: finding one, and what the kernel says of it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use procfs::process::Process;

/// Directories that are looked at when one is searched for or summed up.
const MOST_GROUPS: usize = 20_000;

/// A control group.
#[derive(Debug)]
pub(crate) struct Group {
    path: PathBuf,
}

/// CPU time of a control group, in nanoseconds; of all that ever were in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cpu {
    pub(crate) cpu_ns: u64,
    pub(crate) user_ns: u64,
    pub(crate) system_ns: u64,
}

/// CPU time since a start, over the end and the beginning anew of the group: its accounts begin with
/// it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuSince {
    base: Cpu,
    last: Cpu,
    before: Cpu,
}

impl CpuSince {
    /// From here on.
    pub(crate) fn new(now: Cpu) -> CpuSince {
        CpuSince { base: now, last: now, before: Cpu::default() }
    }

    /// What was used until `now`, or until it was last known.
    pub(crate) fn used(&mut self, now: Option<Cpu>) -> Cpu {
        if let Some(now) = now {
            if now.cpu_ns < self.last.cpu_ns {
                self.before = self.sum();
                self.base = Cpu::default();
            }
            self.last = now;
        }
        self.sum()
    }

    fn sum(&self) -> Cpu {
        let sum =
            |of: fn(&Cpu) -> u64| of(&self.before) + of(&self.last).saturating_sub(of(&self.base));
        Cpu {
            cpu_ns: sum(|cpu| cpu.cpu_ns),
            user_ns: sum(|cpu| cpu.user_ns),
            system_ns: sum(|cpu| cpu.system_ns),
        }
    }
}

/// Where the kernel shows them.
pub(crate) fn mount() -> Result<PathBuf, String> {
    let mounts = Process::myself()
        .and_then(|this| this.mountinfo())
        .map_err(|error| format!("cannot read /proc/self/mountinfo: {error}"))?;
    let mount = mounts.into_iter().find(|mount| mount.fs_type == "cgroup2");
    mount.map(|mount| mount.mount_point).ok_or_else(|| {
        "no control groups of version 2 are mounted here (mount -t cgroup2 none /sys/fs/cgroup)"
            .to_owned()
    })
}

impl Group {
    /// That which `given` names: a path below `root`, whole, or from there on.
    pub(crate) fn at(root: &Path, given: &Path) -> Result<Group, String> {
        let beneath = root.join(given.strip_prefix("/").unwrap_or(given));
        let whole = given.is_absolute() && given.is_dir();
        let named = if whole { given } else { &beneath };
        let path = named.canonicalize().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => format!("there is no control group {}", beneath.display()),
            _ => format!("{}: {error}", named.display()),
        })?;
        let root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
        if !path.starts_with(&root) || !path.join("cgroup.controllers").exists() {
            let path = path.display();
            let root = root.display();
            return Err(format!("{path} is no control group of version 2; these are below {root}"));
        }
        Ok(Group { path })
    }

    /// That of a unit, wherever it is below `root`.
    pub(crate) fn of_unit(root: &Path, unit: &str) -> Result<Group, String> {
        let mut found: Vec<PathBuf> = subtree(root)
            .into_iter()
            .filter(|path| path.file_name().is_some_and(|name| name == unit))
            .collect();
        // The system's own before those of its users.
        if let Some(own) = found.iter().position(|path| path.starts_with(root.join("system.slice")))
        {
            found = vec![found.swap_remove(own)];
        }
        match found.as_slice() {
            [path] => Group::at(root, path),
            [] => match ask_systemd(unit) {
                Some(path) => Group::at(root, &path),
                None => Err(format!("no unit {unit} is running: there is no such control group")),
            },
            [one, other, ..] => {
                let (one, other) = (one.display(), other.display());
                Err(format!("there are several, such as {one} and {other}; give one's path"))
            }
        }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its directory, for the kernel.
    pub(crate) fn open(&self) -> io::Result<File> {
        File::open(&self.path)
    }

    /// Those in it and in the groups below.
    pub(crate) fn processes(&self) -> io::Result<Vec<i32>> {
        let mut all = Vec::new();
        for (index, path) in subtree(&self.path).into_iter().enumerate() {
            match fs::read_to_string(path.join("cgroup.procs")) {
                Ok(text) => all.extend(text.lines().filter_map(|line| line.parse::<i32>().ok())),
                Err(error) if index == 0 => return Err(error),
                // One that has gone meanwhile, or whose threads are in several.
                Err(_) => {}
            }
        }
        // The kernel says 0 for those that this namespace does not see.
        all.retain(|&pid| pid > 0);
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }

    /// `cpu.stat`.
    pub(crate) fn cpu(&self) -> io::Result<Cpu> {
        let text = fs::read_to_string(self.path.join("cpu.stat"))?;
        let micros = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            let value: Option<u64> = line.and_then(|value| value.trim().parse().ok());
            value
                .map(|value| value.saturating_mul(1_000))
                .ok_or_else(|| io::Error::other(format!("no {name} in cpu.stat")))
        };
        Ok(Cpu {
            cpu_ns: micros("usage_usec")?,
            user_ns: micros("user_usec")?,
            system_ns: micros("system_usec")?,
        })
    }

    /// `memory.current`, or `memory.peak`, which is since the group was made.
    pub(crate) fn memory(&self, which: &str) -> io::Result<u64> {
        let text = fs::read_to_string(self.path.join(which))?;
        text.trim().parse().map_err(io::Error::other)
    }
}

/// A group and all below it, the nearer first; links lead nowhere.
fn subtree(path: &Path) -> Vec<PathBuf> {
    let mut found = vec![path.to_owned()];
    let mut next = 0;
    while next < found.len() && found.len() < MOST_GROUPS {
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

/// Where systemd says that it is; none if there is no systemd, or no such unit.
fn ask_systemd(unit: &str) -> Option<PathBuf> {
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

    /// A hierarchy as the kernel would show it.
    fn made_up(groups: &[(&str, &str)]) -> TempDir {
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
    fn a_path_is_whole_or_from_the_mount_on() {
        let root = made_up(&[("web", "7\n"), ("web/one", "9\n8\n0\n"), ("other", "5\n")]);
        let whole = root.path().join("web");
        for given in [whole.as_path(), Path::new("web"), Path::new("/web"), Path::new("web/")] {
            let group = Group::at(root.path(), given).unwrap();
            assert_eq!(group.path(), whole.canonicalize().unwrap(), "{}", given.display());
            assert_eq!(group.processes().unwrap(), [7, 8, 9]);
        }
        let one = Group::at(root.path(), Path::new("web/one")).unwrap();
        assert_eq!(one.processes().unwrap(), [8, 9]);
    }

    #[test]
    fn what_is_no_group_is_said() {
        let root = made_up(&[]);
        fs::create_dir(root.path().join("v1")).unwrap();
        fs::write(root.path().join("v1/cgroup.procs"), "").unwrap();
        let said = |given: &str| Group::at(root.path(), Path::new(given)).unwrap_err();
        assert!(said("no/such").contains("there is no control group"), "{}", said("no/such"));
        assert!(said("v1").contains("is no control group of version 2"), "{}", said("v1"));
        assert!(said("/usr").contains("is no control group of version 2"), "{}", said("/usr"));
        std::os::unix::fs::symlink("/", root.path().join("out")).unwrap();
        assert!(said("out").contains("is no control group"), "{}", said("out"));
    }

    #[test]
    fn a_unit_is_found_where_it_is() {
        let root = made_up(&[
            ("system.slice", ""),
            ("system.slice/nginx.service", "3\n"),
            ("user.slice/user-1.slice/nginx.service", "4\n"),
            ("system.slice/system-web.slice/web@1.service", "5\n"),
            ("user.slice/user-1.slice/twice.service", ""),
            ("user.slice/user-2.slice/twice.service", ""),
        ]);
        let processes = |unit| Group::of_unit(root.path(), unit).unwrap().processes().unwrap();
        assert_eq!(processes("nginx.service"), [3]);
        assert_eq!(processes("web@1.service"), [5]);
        let twice = Group::of_unit(root.path(), "twice.service").unwrap_err();
        assert!(twice.starts_with("there are several, such as "), "{twice}");
        let none = Group::of_unit(root.path(), "no-such-unit-anywhere.service").unwrap_err();
        assert!(none.contains("no unit no-such-unit-anywhere.service is running"), "{none}");
    }

    #[test]
    fn a_group_that_begins_anew_goes_on() {
        let cpu = |ns| Cpu { cpu_ns: ns, user_ns: ns / 2, system_ns: ns / 2 };
        let mut since = CpuSince::new(cpu(100));
        assert_eq!(since.used(Some(cpu(140))), cpu(40));
        assert_eq!(since.used(None), cpu(40));
        assert_eq!(since.used(Some(cpu(10))), cpu(50));
        assert_eq!(since.used(Some(cpu(30))), cpu(70));
    }

    #[test]
    fn its_accounts_are_read_or_the_lack_of_them_is_an_error() {
        let root = made_up(&[("web", "")]);
        let group = Group::at(root.path(), Path::new("web")).unwrap();
        assert!(group.cpu().is_err() && group.memory("memory.current").is_err());
        let stat = "usage_usec 12\nuser_usec 5\nsystem_usec 7\nnice_usec 0\n";
        fs::write(group.path().join("cpu.stat"), stat).unwrap();
        fs::write(group.path().join("memory.current"), "4096\n").unwrap();
        let cpu = Cpu { cpu_ns: 12_000, user_ns: 5_000, system_ns: 7_000 };
        assert_eq!(group.cpu().unwrap(), cpu);
        assert_eq!(group.memory("memory.current").unwrap(), 4096);
        fs::write(group.path().join("cpu.stat"), "usage_usec -1\nuser_usec x\n").unwrap();
        fs::write(group.path().join("memory.current"), "max\n").unwrap();
        assert!(group.cpu().is_err() && group.memory("memory.current").is_err());
    }
}
