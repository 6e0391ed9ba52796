//! A server that is watched: a child of this test, which is this test again and does as it is told.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use hearken_lab::watch::{SHORTEST_INTERVAL, Watch};
use rustix::time::{ClockId, clock_gettime};

const ROLE: &str = "HEARKEN_WATCHED";

/// Says that the child's line is an answer, among those of the test harness.
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

/// No test of its own, but what the child does.
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
        let (order, number) = line.split_once(' ').unwrap();
        let number: u64 = number.parse().unwrap();
        match order {
            "burn" => burn(number),
            "burn-in-threads" => {
                (0..number).for_each(|_| std::thread::spawn(|| burn(20)).join().unwrap());
            }
            "burn-in-children" => {
                for _ in 0..number {
                    let program = std::env::current_exe().unwrap();
                    let mut child = told(&program).spawn().unwrap();
                    child.stdin.take().unwrap().write_all(b"burn 50\nend 0\n").unwrap();
                    child.wait().unwrap();
                }
            }
            "listen" => listener = Some(TcpListener::bind("127.0.0.1:0").unwrap()),
            "connect" => {
                let to = listener.as_ref().unwrap().local_addr().unwrap();
                for _ in 0..number {
                    sockets.push(TcpStream::connect(to).unwrap());
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

fn told(program: &std::path::Path) -> Command {
    let mut command = Command::new(program);
    command.args(["--exact", "child", "--nocapture"]).env(ROLE, "1");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

struct Server {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Server {
    fn start() -> Server {
        let mut child = told(&std::env::current_exe().unwrap()).spawn().unwrap();
        let orders = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Server { child, orders, answers }
    }

    /// Has it do something, and tells the CPU time that it then says to have used, and its port.
    fn told(&mut self, order: &str) -> (u64, u16) {
        writeln!(self.orders, "{order}").unwrap();
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.answers.read_line(&mut line).unwrap() > 0, "the child has ended");
            if let Some((_, answer)) = line.split_once(MARK) {
                let (used, port) = answer.trim().split_once(' ').unwrap();
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

/// Within a tenth, and what answering takes.
fn is_about(told: u64, watched: u64) -> bool {
    watched.abs_diff(told) <= told / 10 + 20_000_000
}

#[test]
fn cpu_time_is_what_the_process_says_itself() {
    let mut server = Server::start();
    server.told("burn 1");
    let watch = Watch::new(&server.pid()).unwrap();
    let before = server.told("burn 0").0;
    let sampler = watch.start(Duration::from_millis(20)).unwrap();
    server.told("burn 150");
    let told = server.told("burn-in-threads 5").0 - before;
    let seen = sampler.stop();
    let total = &seen.total;
    assert!(is_about(told, total.cpu_ns.unwrap()), "{told} {total:?}");
    assert!(told >= 250_000_000, "{told}");
    let parts = total.user_ns.unwrap() + total.system_ns.unwrap();
    assert!(is_about(told, parts), "{told} {total:?}");
    assert!(total.cores.unwrap() > 0.0 && total.peak_resident_bytes > Some(100_000));
    assert!(total.voluntary_context_switches.is_some() && seen.ended == 0, "{seen:?}");
    assert!(seen.samples.windows(2).all(|w| w[0].at_s < w[1].at_s && w[0].cpu_ns <= w[1].cpu_ns));
    assert_eq!((seen.processes, seen.samples[0].processes), (1, 1));
    // Each number is there, or why it is not.
    assert!(total.syscalls.is_some() || seen.not_had.iter().any(|s| s.starts_with("system calls")));
    assert!(
        total.instructions.is_some() || seen.not_had.iter().any(|s| s.starts_with("instructions"))
    );
}

#[test]
fn children_that_come_and_go_count() {
    let mut server = Server::start();
    server.told("burn 1");
    let watch = Watch::new(&server.pid()).unwrap();
    // So seldom that no sample sees a child.
    let sampler = watch.start(Duration::from_secs(3600)).unwrap();
    server.told("burn-in-children 4");
    let seen = sampler.stop();
    let cpu_ns = seen.total.cpu_ns.unwrap();
    assert!(cpu_ns >= 180_000_000, "four children used 50 ms each, but {cpu_ns} ns were seen");
}

#[test]
fn sockets_are_counted_exactly() {
    let mut server = Server::start();
    server.told("listen 0");
    let mut watch = Watch::new(&server.pid()).unwrap();
    let before = watch.sample();
    server.told("connect 25");
    server.told("open 10");
    let after = watch.sample();
    let added = |of: fn(&hearken_load::ServerSample) -> Option<u64>| {
        of(&after).unwrap() - of(&before).unwrap()
    };
    assert_eq!((added(|s| s.sockets), added(|s| s.descriptors)), (50, 60));
    assert_eq!(before.sockets, Some(1));
}

/// More than are looked at one by one: what was no socket is still none.
#[test]
fn very_many_sockets_are_counted() {
    if hearken::descriptors::raise_limit().unwrap() < 4_300 {
        return;
    }
    let mut server = Server::start();
    server.told("listen 0");
    server.told("open 10");
    let mut watch = Watch::new(&server.pid()).unwrap();
    server.told("connect 2100");
    assert_eq!(watch.sample().sockets, Some(4201));
}

#[test]
fn whoever_listens_on_a_port_is_found() {
    let mut server = Server::start();
    let port = server.told("listen 0").1;
    let mut watch = Watch::new(&format!(":{port}")).unwrap();
    assert_eq!(watch.sample().processes, 1);
    server.told("burn 50");
    assert!(watch.sample().cpu_ns.unwrap() >= 50_000_000);
    drop(server);
    let error = Watch::new(&format!(":{port}")).unwrap_err().to_string();
    assert!(error.contains(&format!("nobody listens on TCP port {port}")), "{error}");
}

#[test]
fn one_that_ends_is_noted_and_keeps_what_it_used() {
    let mut server = Server::start();
    server.told("burn 1");
    let watch = Watch::new(&server.pid()).unwrap();
    let sampler = watch.start(SHORTEST_INTERVAL).unwrap();
    let told = server.told("burn 60").0;
    let is_seen = (0..6_000).any(|_| {
        std::thread::sleep(Duration::from_millis(5));
        sampler.latest().cpu_ns >= Some(60_000_000)
    });
    assert!(is_seen, "{:?}", sampler.latest());
    writeln!(server.orders, "end 0").unwrap();
    server.child.wait().unwrap();
    let seen = sampler.stop();
    assert_eq!((seen.ended, seen.processes), (1, 1), "{seen:?}");
    assert!(seen.gone_at_s.is_some() && seen.samples.last().unwrap().processes == 0);
    let used = seen.total.cpu_ns.unwrap();
    assert!(used >= 60_000_000 && used <= told + 100_000_000, "{used} {told}");
    assert!(seen.to_string().contains("  ended      1 watched process; none was left after "));
}

#[test]
fn what_cannot_be_watched_is_said_in_a_line() {
    for (what, why) in [
        ("2147483647", "no such process"),
        ("no/such/group", "control group"),
        ("no-such-unit-anywhere", "no-such-unit-anywhere.service"),
        ("", "give a process id"),
    ] {
        let error = Watch::new(what).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot watch \"{what}\": ")), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        // Without control groups of version 2, that is what is said.
        assert!(error.contains(why) || error.contains("mount -t cgroup2"), "{error}");
    }
}
