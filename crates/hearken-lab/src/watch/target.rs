//! Specification of the server to watch.

use std::path::{Component, PathBuf};
use std::str::FromStr;

use crate::error::LabError;

/// A server to watch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Target {
    /// `4711`: a process and its descendants.
    Process(i32),
    /// `:80`: the processes that listen on a TCP port of this machine, and their descendants.
    Port(u16),
    /// `/sys/fs/cgroup/web` or `web/one`: a cgroup and its descendants (cgroup v2).
    Cgroup(PathBuf),
    /// `nginx.service` or `nginx`: a systemd unit, which is a cgroup. If no such unit exists, a cgroup
    /// with that name.
    Unit(String),
}

/// Types of systemd units that have processes.
const UNIT_TYPES: [&str; 3] = [".service", ".scope", ".slice"];

impl FromStr for Target {
    type Err = LabError;

    fn from_str(text: &str) -> Result<Target, LabError> {
        let wrong = |problem: &str| Err(watch_error(text, problem));
        if text.is_empty() {
            return wrong("specify a process id, :PORT, a systemd unit or a cgroup");
        }
        if text.chars().any(char::is_control) {
            return wrong("control characters are not allowed");
        }
        if let Some(port) = text.strip_prefix(':') {
            return match port.parse() {
                Ok(port) if port > 0 && is_number(text, 1) => Ok(Target::Port(port)),
                _ => wrong("expected a port from 1 to 65535 after ':'"),
            };
        }
        if is_number(text, 0) {
            return match text.parse() {
                Ok(pid) if pid > 0 => Ok(Target::Process(pid)),
                _ => wrong("a process id is an integer from 1 to 2147483647"),
            };
        }
        if text.starts_with(['-', '+']) {
            return wrong("a process id or name must not start with a sign");
        }
        if text.contains('/') {
            let path = PathBuf::from(text);
            if path.components().any(|part| part == Component::ParentDir) {
                return wrong("the path of a cgroup must not contain '..'");
            }
            return Ok(Target::Cgroup(path));
        }
        if text == "." || text == ".." {
            return wrong("not a unit name");
        }
        let is_whole = UNIT_TYPES.iter().any(|kind| text.ends_with(kind));
        Ok(Target::Unit(if is_whole { text.to_owned() } else { format!("{text}.service") }))
    }
}

fn is_number(text: &str, after: usize) -> bool {
    text.bytes().skip(after).all(|byte| byte.is_ascii_digit())
}

/// Returns the error for a target.
pub(crate) fn watch_error(target: &str, problem: &str) -> LabError {
    LabError::Watch { target: target.escape_debug().to_string(), problem: problem.to_owned() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parses_each_form() {
        for (text, target) in [
            ("4711", Target::Process(4711)),
            (":80", Target::Port(80)),
            ("/sys/fs/cgroup/web", Target::Cgroup("/sys/fs/cgroup/web".into())),
            ("web/one", Target::Cgroup("web/one".into())),
            ("/", Target::Cgroup("/".into())),
            ("nginx", Target::Unit("nginx.service".into())),
            ("nginx.service", Target::Unit("nginx.service".into())),
            ("web@1", Target::Unit("web@1.service".into())),
            ("session-2.scope", Target::Unit("session-2.scope".into())),
            ("7zip", Target::Unit("7zip.service".into())),
        ] {
            assert_eq!(text.parse::<Target>().unwrap(), target, "{text}");
        }
    }

    #[test]
    fn rejects_other_forms_with_one_line() {
        for text in [
            "",
            ":",
            ":0",
            ":65536",
            ":+80",
            ":80/tcp",
            "0",
            "2147483648",
            "-1",
            "+5",
            "..",
            ".",
            "a/../b",
            "/sys/fs/cgroup/../../etc",
            "a\nb",
            "99999999999999999999",
        ] {
            let error = text.parse::<Target>().unwrap_err().to_string();
            assert_eq!(error.lines().count(), 1, "{error}");
            assert!(error.starts_with("cannot watch '"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_target_or_a_one_line_error(text in ".{0,40}") {
            match text.parse::<Target>() {
                Ok(Target::Process(pid)) => prop_assert!(pid > 0),
                Ok(Target::Port(port)) => prop_assert!(port > 0),
                Ok(Target::Cgroup(path)) => prop_assert!(!path.as_os_str().is_empty()),
                Ok(Target::Unit(unit)) => prop_assert!(!unit.contains('/')),
                Err(error) => prop_assert_eq!(error.to_string().lines().count(), 1),
            }
        }
    }
}
