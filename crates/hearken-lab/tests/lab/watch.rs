//! Watching a server: a child process that runs this test executable and executes commands.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use hearken_lab::watch::{MIN_INTERVAL, Watch};
use rustix::time::{ClockId, clock_gettime};

const ROLE: &str = "HEARKEN_WATCHED";

/// Prefix of the responses of the child, to distinguish them from the output of the test harness.
const MARK: &str = "@ ";

fn used_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

fn burn(ms: u64) {
    let end = used_ns(ClockId::ThreadCPUTime) + ms * 1_000_000;
    let mut x = 1u64;
    while used_ns(ClockId::ThreadCPUTime) < end {
        for _ in 0..1_000 {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
    }
}

/// Executes commands in the child process. Not a test.
#[test]
fn child() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let _ = hearken::descriptors::raise_limit();
    let mut listener = None;
    let mut sockets = Vec::new();
    let mut files = Vec::new();
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (command, number) = line.split_once(' ').unwrap();
        let number: u64 = number.parse().unwrap();
        match command {
            "burn" => burn(number),
            "burn-in-threads" => {
                (0..number).for_each(|_| std::thread::spawn(|| burn(20)).join().unwrap());
            }
            "burn-in-children" => {
                for _ in 0..number {
                    let program = std::env::current_exe().unwrap();
                    let mut child = child_command(&program).spawn().unwrap();
                    child.stdin.take().unwrap().write_all(b"burn 50\nend 0\n").unwrap();
                    child.wait().unwrap();
                }
            }
            "listen" => listener = Some(TcpListener::bind("127.0.0.1:0").unwrap()),
            "connect" => {
                let address = listener.as_ref().unwrap().local_addr().unwrap();
                for _ in 0..number {
                    sockets.push(TcpStream::connect(address).unwrap());
                    sockets.push(listener.as_ref().unwrap().accept().unwrap().0);
                }
            }
            "open" => files.extend((0..number).map(|_| std::fs::File::open("/dev/null").unwrap())),
            "end" => std::process::exit(0),
            other => panic!("{other}"),
        }
        let port = listener.as_ref().map_or(0, |listener| listener.local_addr().unwrap().port());
        println!("{MARK}{} {port}", used_ns(ClockId::ProcessCPUTime));
    }
}

fn child_command(program: &std::path::Path) -> Command {
    let mut command = Command::new(program);
    command.args(["--exact", "watch::child", "--nocapture"]).env(ROLE, "1");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

struct Server {
    child: Child,
    commands: ChildStdin,
    responses: BufReader<ChildStdout>,
}

impl Server {
    fn start() -> Server {
        let mut child = child_command(&std::env::current_exe().unwrap()).spawn().unwrap();
        let commands = child.stdin.take().unwrap();
        let responses = BufReader::new(child.stdout.take().unwrap());
        Server { child, commands, responses }
    }

    /// Executes a command in the child. Returns its total CPU time in nanoseconds and its port.
    fn execute(&mut self, command: &str) -> (u64, u16) {
        writeln!(self.commands, "{command}").unwrap();
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.responses.read_line(&mut line).unwrap() > 0, "the child has exited");
            if let Some((_, response)) = line.split_once(MARK) {
                let (used, port) = response.trim().split_once(' ').unwrap();
                return (used.parse().unwrap(), port.parse().unwrap());
            }
        }
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns whether two CPU times agree within a tenth plus the time for a response.
fn is_about(expected: u64, watched: u64) -> bool {
    watched.abs_diff(expected) <= expected / 10 + 20_000_000
}

#[test]
fn cpu_time_matches_the_clock_of_the_process() {
    let mut server = Server::start();
    server.execute("burn 1");
    let watch = Watch::new(&server.pid()).unwrap();
    let before = server.execute("burn 0").0;
    let sampler = watch.start(Duration::from_millis(20)).unwrap();
    server.execute("burn 150");
    let expected = server.execute("burn-in-threads 5").0 - before;
    let result = sampler.stop();
    let total = &result.total;
    assert!(is_about(expected, total.cpu_ns.unwrap()), "{expected} {total:?}");
    assert!(expected >= 250_000_000, "{expected}");
    let parts = total.user_ns.unwrap() + total.system_ns.unwrap();
    assert!(is_about(expected, parts), "{expected} {total:?}");
    assert!(total.cores.unwrap() > 0.0 && total.peak_resident_bytes > Some(100_000));
    assert!(
        total.voluntary_context_switches.is_some() && result.exited_processes == 0,
        "{result:?}"
    );
    assert!(
        result
            .samples
            .windows(2)
            .all(|w| w[0].offset_s < w[1].offset_s && w[0].cpu_ns <= w[1].cpu_ns)
    );
    assert_eq!((result.processes, result.samples[0].processes), (1, 1));
    // Each value is available or listed with the reason.
    assert!(
        total.syscalls.is_some()
            || result.unavailable.iter().any(|s| s.starts_with("system calls"))
    );
    assert!(
        total.instructions.is_some()
            || result.unavailable.iter().any(|s| s.starts_with("instructions"))
    );
}

#[test]
fn short_lived_children_count() {
    let mut server = Server::start();
    server.execute("burn 1");
    let watch = Watch::new(&server.pid()).unwrap();
    // The interval is so long that no sample sees a child.
    let sampler = watch.start(Duration::from_secs(3600)).unwrap();
    server.execute("burn-in-children 4");
    let result = sampler.stop();
    let cpu_ns = result.total.cpu_ns.unwrap();
    assert!(cpu_ns >= 180_000_000, "four children used 50 ms each, but {cpu_ns} ns were result");
}

#[test]
fn counts_sockets_exactly() {
    let mut server = Server::start();
    server.execute("listen 0");
    let mut watch = Watch::new(&server.pid()).unwrap();
    let before = watch.sample();
    server.execute("connect 25");
    server.execute("open 10");
    let after = watch.sample();
    let added = |of: fn(&hearken_load::ServerSample) -> Option<u64>| {
        of(&after).unwrap() - of(&before).unwrap()
    };
    assert_eq!((added(|s| s.sockets), added(|s| s.descriptors)), (50, 60));
    assert_eq!(before.sockets, Some(1));
}

/// Counts more sockets than are read one by one, without mistaking other descriptors for sockets.
#[test]
fn counts_very_many_sockets() {
    if hearken::descriptors::raise_limit().unwrap() < 4_300 {
        return;
    }
    let mut server = Server::start();
    server.execute("listen 0");
    server.execute("open 10");
    let mut watch = Watch::new(&server.pid()).unwrap();
    server.execute("connect 2100");
    assert_eq!(watch.sample().sockets, Some(4201));
}

#[test]
fn finds_the_process_that_listens_on_a_port() {
    let mut server = Server::start();
    let port = server.execute("listen 0").1;
    let mut watch = Watch::new(&format!(":{port}")).unwrap();
    assert_eq!(watch.sample().processes, 1);
    server.execute("burn 50");
    assert!(watch.sample().cpu_ns.unwrap() >= 50_000_000);
    drop(server);
    let error = Watch::new(&format!(":{port}")).unwrap_err().to_string();
    assert!(error.contains(&format!("no process listens on TCP port {port}")), "{error}");
}

#[test]
fn exited_process_keeps_its_usage() {
    let mut server = Server::start();
    server.execute("burn 1");
    let watch = Watch::new(&server.pid()).unwrap();
    let sampler = watch.start(MIN_INTERVAL).unwrap();
    let expected = server.execute("burn 60").0;
    let is_sampled = (0..6_000).any(|_| {
        std::thread::sleep(Duration::from_millis(5));
        sampler.latest().cpu_ns >= Some(60_000_000)
    });
    assert!(is_sampled, "{:?}", sampler.latest());
    writeln!(server.commands, "end 0").unwrap();
    server.child.wait().unwrap();
    let result = sampler.stop();
    assert_eq!((result.exited_processes, result.processes), (1, 1), "{result:?}");
    assert!(result.exited_at_s.is_some() && result.samples.last().unwrap().processes == 0);
    let used = result.total.cpu_ns.unwrap();
    assert!(used >= 60_000_000 && used <= expected + 100_000_000, "{used} {expected}");
    assert!(result.to_string().contains("  exited     1 monitored process"));
}

#[test]
fn errors_have_one_line_and_name_the_target() {
    for (target, reason) in [
        ("2147483647", "no such process"),
        ("no/such/group", "cgroup"),
        ("no-such-unit-anywhere", "no-such-unit-anywhere.service"),
        ("", "specify a process id"),
    ] {
        let error = Watch::new(target).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot watch '{target}': ")), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        // The error differs on machines without cgroup v2.
        assert!(error.contains(reason) || error.contains("mount -t cgroup2"), "{error}");
    }
}
