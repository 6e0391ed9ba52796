//! What may be watched, as it is written.

use std::path::{Component, PathBuf};
use std::str::FromStr;

use crate::error::LabError;

/// What is to be watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `4711`: a process, with all that descend from it.
    Process(i32),
    /// `:80`: whoever listens on a TCP port of this machine, with all that descend from them.
    Port(u16),
    /// `/sys/fs/cgroup/web` or `web/one`: a control group of version 2, with those below it.
    Group(PathBuf),
    /// `nginx.service` or `nginx`: a unit of systemd, which is a control group; if there is none, a
    /// control group of that name.
    Unit(String),
}

/// Units that have processes.
const UNITS: [&str; 3] = [".service", ".scope", ".slice"];

impl FromStr for Target {
    type Err = LabError;

    fn from_str(text: &str) -> Result<Target, LabError> {
        let wrong = |problem: &str| Err(not_watched(text, problem));
        if text.is_empty() {
            return wrong("give a process id, :PORT, a systemd unit or a control group");
        }
        if text.chars().any(char::is_control) {
            return wrong("there are control characters in it");
        }
        if let Some(port) = text.strip_prefix(':') {
            return match port.parse() {
                Ok(port) if port > 0 && is_number(text, 1) => Ok(Target::Port(port)),
                _ => wrong("after the colon a port from 1 to 65535 is expected"),
            };
        }
        if is_number(text, 0) {
            return match text.parse() {
                Ok(pid) if pid > 0 => Ok(Target::Process(pid)),
                _ => wrong("a process id is a number from 1 to 2147483647"),
            };
        }
        if text.starts_with(['-', '+']) {
            return wrong("neither a process id nor a name begins with a sign");
        }
        if text.contains('/') {
            let path = PathBuf::from(text);
            if path.components().any(|part| part == Component::ParentDir) {
                return wrong("a control group is named without \"..\"");
            }
            return Ok(Target::Group(path));
        }
        if text == "." || text == ".." {
            return wrong("this is no name of a unit");
        }
        let is_whole = UNITS.iter().any(|kind| text.ends_with(kind));
        Ok(Target::Unit(if is_whole { text.to_owned() } else { format!("{text}.service") }))
    }
}

fn is_number(text: &str, after: usize) -> bool {
    text.bytes().skip(after).all(|byte| byte.is_ascii_digit())
}

/// The error that names what was to be watched.
pub(crate) fn not_watched(what: &str, problem: &str) -> LabError {
    LabError::Watch { what: what.escape_debug().to_string(), problem: problem.to_owned() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_kind_is_told_by_its_form() {
        for (text, target) in [
            ("4711", Target::Process(4711)),
            (":80", Target::Port(80)),
            ("/sys/fs/cgroup/web", Target::Group("/sys/fs/cgroup/web".into())),
            ("web/one", Target::Group("web/one".into())),
            ("/", Target::Group("/".into())),
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
    fn what_is_none_of_them_is_refused_in_a_line() {
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
            assert!(error.starts_with("cannot watch \""), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_target_or_an_error_of_one_line(text in ".{0,40}") {
            match text.parse::<Target>() {
                Ok(Target::Process(pid)) => prop_assert!(pid > 0),
                Ok(Target::Port(port)) => prop_assert!(port > 0),
                Ok(Target::Group(path)) => prop_assert!(!path.as_os_str().is_empty()),
                Ok(Target::Unit(unit)) => prop_assert!(!unit.contains('/')),
                Err(error) => prop_assert_eq!(error.to_string().lines().count(), 1),
            }
        }
    }
}
