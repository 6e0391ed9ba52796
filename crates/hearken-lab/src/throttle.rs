//! CPU quotas for servers, by control groups (cgroups v2, or v1 where the cpu controller is there).

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use procfs::process::Process;

use crate::error::LabError;

/// Beginning of the names of cgroups. The process id of the lab follows.
const PREFIX: &str = "hearken-lab-";
/// Minimum CPU time per period that the kernel accepts.
const MIN_QUOTA: Duration = Duration::from_millis(1);
/// Shortest period. The kernel checks quotas at scheduling events and ticks, which are up to 4 ms apart. It
/// subtracts an excess from the next periods.
const MIN_PERIOD: Duration = Duration::from_millis(4);
/// Time limit for the processes of a cgroup to disappear.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(1);

/// A cgroup with a CPU quota. Dropping it removes the cgroup, which must be empty by then.
#[derive(Debug)]
pub(crate) struct Throttle {
    path: PathBuf,
    version: Version,
}

/// Counts of how a quota stopped the processes of a cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Throttled {
    /// Number of periods in which processes were runnable.
    pub(crate) periods: u64,
    /// Number of periods in which the quota was used up.
    pub(crate) throttled_periods: u64,
    /// Time in which processes were stopped, in nanoseconds.
    pub(crate) throttled_ns: u64,
}

/// Version of the interface of cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// A directory below which cgroups with the cpu controller may be created.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Parent {
    path: PathBuf,
    version: Version,
}

impl Throttle {
    /// Creates a cgroup that is limited to a share of one processor.
    ///
    /// # Errors
    /// The call that the kernel refused, its error, and what would permit it.
    pub(crate) fn new(share: f64) -> Result<Throttle, LabError> {
        let mut refused = LabError::Throttle {
            call: "read".into(),
            path: "/proc/self/mountinfo".into(),
            source: io::Error::other("no cgroup file system with the cpu controller is mounted"),
        };
        for parent in parents() {
            match Throttle::below(&parent, share) {
                Ok(throttle) => return Ok(throttle),
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }

    fn below(parent: &Parent, share: f64) -> Result<Throttle, LabError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        remove_abandoned(&parent.path);
        if parent.version == Version::Two {
            enable_controller(&parent.path)?;
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.path.join(format!("{PREFIX}{}-{number}", std::process::id()));
        fs::create_dir(&path).map_err(refusal("mkdir", &path))?;
        let throttle = Throttle { path, version: parent.version };
        throttle.limit(share)?;
        Ok(throttle)
    }

    fn limit(&self, share: f64) -> Result<(), LabError> {
        let period = MIN_PERIOD.max(MIN_QUOTA.div_f64(share.clamp(0.001, 1.0)));
        let quota = period.mul_f64(share.max(0.001)).max(MIN_QUOTA).as_micros();
        let period = period.as_micros();
        match self.version {
            Version::One => {
                self.write("cpu.cfs_period_us", &period.to_string())?;
                self.write("cpu.cfs_quota_us", &quota.to_string())
            }
            Version::Two => self.write("cpu.max", &format!("{quota} {period}")),
        }
    }

    fn write(&self, file: &str, text: &str) -> Result<(), LabError> {
        let path = self.path.join(file);
        fs::write(&path, text).map_err(refusal("write", &path))
    }

    /// Returns the file by which a process joins the cgroup.
    pub(crate) fn members(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    /// Returns the counts since the creation.
    pub(crate) fn throttled(&self) -> Result<Throttled, LabError> {
        let path = self.path.join("cpu.stat");
        let text = fs::read_to_string(&path).map_err(LabError::file("read", &path))?;
        Ok(Throttled::parse(&text))
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        let deadline = Instant::now() + REMOVE_TIMEOUT;
        // A process that was killed remains a member until the kernel has removed it.
        while fs::remove_dir(&self.path).is_err_and(|error| error.kind() != io::ErrorKind::NotFound)
            && Instant::now() < deadline
        {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Throttled {
    fn parse(text: &str) -> Throttled {
        let value = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(' '));
            lines.find(|(key, _)| *key == name).and_then(|(_, value)| value.trim().parse().ok())
        };
        let microseconds = |value: u64| value.saturating_mul(1000);
        let time = value("throttled_usec").map(microseconds).or_else(|| value("throttled_time"));
        Throttled {
            periods: value("nr_periods").unwrap_or(0),
            throttled_periods: value("nr_throttled").unwrap_or(0),
            throttled_ns: time.unwrap_or(0),
        }
    }

    /// Returns the counts since `earlier`.
    pub(crate) fn since(&self, earlier: &Throttled) -> Throttled {
        Throttled {
            periods: self.periods.saturating_sub(earlier.periods),
            throttled_periods: self.throttled_periods.saturating_sub(earlier.throttled_periods),
            throttled_ns: self.throttled_ns.saturating_sub(earlier.throttled_ns),
        }
    }
}

/// Returns the error of a refused call on a cgroup.
fn refusal(call: &str, path: &Path) -> impl FnOnce(io::Error) -> LabError {
    let (call, path) = (call.to_owned(), path.to_owned());
    move |source| LabError::Throttle { call, path, source }
}

/// Returns the cgroup of this process and the root, of the hierarchy that has the cpu controller.
fn parents() -> Vec<Parent> {
    let Ok(this) = Process::myself() else { return Vec::new() };
    let (Ok(mounts), Ok(own)) = (this.mountinfo(), this.cgroups()) else { return Vec::new() };
    let mut parents = Vec::new();
    for mount in mounts {
        let has_cpu = |options: &[String]| options.iter().any(|option| option == "cpu");
        let options: Vec<String> = mount.super_options.keys().cloned().collect();
        let version = match mount.fs_type.as_str() {
            "cgroup" if has_cpu(&options) => Version::One,
            "cgroup2" => Version::Two,
            _ => continue,
        };
        let root = mount.mount_point;
        if version == Version::Two && !controllers(&root, "cgroup.controllers").contains("cpu") {
            continue;
        }
        let own = own.0.iter().find(|group| match version {
            Version::One => has_cpu(&group.controllers),
            Version::Two => group.hierarchy == 0,
        });
        let own = own.map(|group| root.join(group.pathname.trim_start_matches('/')));
        let own = own.filter(|path| path.is_dir() && *path != root.join(""));
        parents.extend(own.into_iter().chain([root]).map(|path| Parent { path, version }));
    }
    parents
}

/// Returns the words of a file that lists controllers.
fn controllers(cgroup: &Path, file: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(cgroup.join(file)).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

/// Makes the cpu controller available below a cgroup.
fn enable_controller(parent: &Path) -> Result<(), LabError> {
    const FILE: &str = "cgroup.subtree_control";
    if controllers(parent, FILE).contains("cpu") {
        return Ok(());
    }
    let path = parent.join(FILE);
    fs::write(&path, "+cpu").map_err(refusal("write", &path))
}

/// Removes the cgroups of labs that were killed.
fn remove_abandoned(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        let pid = pid.and_then(|pid| pid.parse().ok());
        if pid.is_some_and(|pid: i32| Process::new(pid).is_err()) {
            // Fails if a process is left, which is then not ours to end.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_both_versions_are_read() {
        let two = "usage_usec 5\nnr_periods 10\nnr_throttled 4\nthrottled_usec 2500\n";
        let expected = Throttled { periods: 10, throttled_periods: 4, throttled_ns: 2_500_000 };
        assert_eq!(Throttled::parse(two), expected);
        let one = "nr_periods 10\nnr_throttled 4\nthrottled_time 2500000\n";
        assert_eq!(Throttled::parse(one), expected);
        assert_eq!(expected.since(&expected), Throttled::default());
        assert_eq!(Throttled::parse(""), Throttled::default());
    }

    #[test]
    fn quota_and_period_are_those_of_the_share() {
        let dir = tempfile::tempdir().unwrap();
        for (share, expected) in [(0.5, "2000 4000"), (0.25, "1000 4000"), (0.1, "1000 10000")] {
            let throttle = Throttle { path: dir.path().into(), version: Version::Two };
            throttle.limit(share).unwrap();
            std::mem::forget(throttle);
            assert_eq!(fs::read_to_string(dir.path().join("cpu.max")).unwrap(), expected);
        }
        let throttle = Throttle { path: dir.path().into(), version: Version::One };
        throttle.limit(0.5).unwrap();
        std::mem::forget(throttle);
        assert_eq!(fs::read_to_string(dir.path().join("cpu.cfs_quota_us")).unwrap(), "2000");
        assert_eq!(fs::read_to_string(dir.path().join("cpu.cfs_period_us")).unwrap(), "4000");
    }

    #[test]
    fn refusals_name_the_call_and_the_remedy() {
        let path = PathBuf::from("/proc/none");
        let parent = Parent { path, version: Version::One };
        let error = Throttle::below(&parent, 0.5).unwrap_err().to_string();
        for part in ["mkdir", "/proc/none/hearken-lab-", "os error 2", "root"] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn process_in_the_cgroup_is_slowed_down() {
        // Where cgroups are not writable, the refusal is tested instead.
        let Ok(throttle) = Throttle::new(0.25) else { return };
        let path = throttle.path.clone();
        let script = format!(
            "echo $$ > '{}' && i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done",
            throttle.members().display()
        );
        assert!(std::process::Command::new("sh").args(["-c", &script]).status().unwrap().success());
        let counts = throttle.throttled().unwrap();
        assert!(counts.throttled_periods > 0 && counts.throttled_ns > 0, "{counts:?}");
        drop(throttle);
        assert!(!path.exists());
    }
}
