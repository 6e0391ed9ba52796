//! Text summary of the server's usage.

use std::fmt;

use super::{Server, ServerUsage};
use crate::summary::{Grouped, HumanBytes, HumanDuration, write_line, write_list};

impl Server {
    /// Returns the text summary, with the usage per reply if `replies` is not 0.
    pub fn summary(&self, replies: u64) -> impl fmt::Display + '_ {
        ServerSummary { server: self, replies }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.summary(0).fmt(f)
    }
}

struct ServerSummary<'a> {
    server: &'a Server,
    replies: u64,
}

impl fmt::Display for ServerSummary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ServerSummary { server, replies } = *self;
        let total = &server.total;
        let what = printable(&server.target);
        let mut usage = format!("{what}: {}", plural(server.processes, "process", "es"));
        if let Some(threads) = total.peak_threads {
            usage += &format!(", {}", plural(threads, "thread", "s"));
        }
        if let Some(cores) = total.cores {
            usage += &format!("; {cores:.2} processors busy");
        }
        let share = |ns: u64| ns as f64 / 1e9 / total.duration_s;
        if let (Some(user), Some(system), true) =
            (total.user_ns, total.system_ns, total.duration_s > 0.0)
        {
            usage += &format!(" ({:.2} user, {:.2} system)", share(user), share(system));
        }
        write_line(f, "server", &usage)?;
        write_list(f, "per reply", &per_reply(total, replies))?;
        write_list(f, "at most", &peaks(total))?;
        if server.exited_processes > 0 {
            let ended = plural(server.exited_processes, "monitored process", "es");
            let gone = server.exited_at_s.map(|at| format!("; none was running after {at:.1} s"));
            write_line(f, "exited", &format!("{ended}{}", gone.unwrap_or_default()))?;
        }
        for sentence in &server.unavailable {
            write_line(f, "n/a", &printable(sentence))?;
        }
        Ok(())
    }
}

fn per_reply(total: &ServerUsage, replies: u64) -> Vec<String> {
    let instructions = total.instructions_per(replies).map(|n| amount(n, "instructions"));
    let user = || total.user_instructions_per(replies).map(|n| amount(n, "user instructions"));
    [
        total.cpu_ns_per(replies).map(|ns| format!("{} CPU", HumanDuration(ns.round() as u64))),
        instructions.or_else(user),
        total.cycles_per(replies).map(|n| amount(n, "cycles")),
        total.syscalls_per(replies).map(|n| amount(n, "system calls")),
        total.context_switches_per(replies).map(|n| amount(n, "context switches")),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn peaks(total: &ServerUsage) -> Vec<String> {
    [
        total.peak_resident_bytes.map(|bytes| format!("{} resident", HumanBytes(bytes))),
        total.peak_memory_bytes.map(|bytes| format!("{} charged to its cgroup", HumanBytes(bytes))),
        total.peak_sockets.map(|n| plural(n, "socket", "s")),
        total.peak_descriptors.map(|n| plural(n, "descriptor", "s")),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn plural(count: u64, of: &str, plural: &str) -> String {
    format!("{} {of}{}", Grouped(count), if count == 1 { "" } else { plural })
}

fn amount(value: f64, of: &str) -> String {
    if value >= 100.0 {
        format!("{} {of}", Grouped(value.round() as u64))
    } else {
        format!("{value:.2} {of}")
    }
}

/// Replaces control characters, because a result may come from an untrusted file.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::watched;
    use super::*;

    #[test]
    fn prints_available_values_only() {
        let mut server = watched();
        let text = server.summary(1_000).to_string();
        let lines: Vec<_> = text.lines().collect();
        let first =
            "  server     nginx.service: 2 processes; 0.50 processors busy (0.12 user, 0.38";
        assert_eq!(lines[..2], [first, "             system)"]);
        assert_eq!(lines[2], "  per reply  1.00 ms CPU");
        assert_eq!(lines[3], "  at most    40.0 MB resident, 40 sockets");
        assert_eq!(lines.len(), 4);
        server.exited_processes = 1;
        server.unavailable.push("instructions:\x1b[2J none".to_owned());
        let text = server.to_string();
        assert!(!text.contains("per reply") && !text.contains('\x1b'), "{text}");
        assert!(text.contains("  exited     1 monitored process\n"), "{text}");
        assert!(text.ends_with("  n/a        instructions:?[2J none\n"), "{text}");
        assert!(Server::default().to_string().starts_with("  server     : 0 processes"));
    }
}
