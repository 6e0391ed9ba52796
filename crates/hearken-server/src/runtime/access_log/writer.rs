//! The thread that writes the access log, and its bounded queue.
//!
//! a) Only the writer thread owns the file, because workers may have their own descriptor tables.
//! b) The queue is bounded in bytes, counted by one atomic. When the queue is full, lines are dropped
//!    and counted. A worker never waits for the queue.
//! c) Standard output may be a pipe that is shared with other processes, so its `O_NONBLOCK` must not
//!    change. The writer therefore polls before each write and writes at most `PIPE_BUF` bytes, which
//!    a writable pipe accepts. While the reader is stalled, it can thus report losses and stop.
//! d) The writer never blocks on stderr either, because stderr may be the same stalled pipe.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::ops::Deref;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;

use super::BATCH_BYTES;

/// Maximum size in bytes of all queued lines of a server.
const QUEUE_BYTES: usize = 1024 * 1024;
/// Maximum time for which a stopping server waits until the log is written.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// Minimum time between two reports of lost lines.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// Pause after a write. Lines accumulate meanwhile, and workers need not wake the writer.
const WRITE_INTERVAL: Duration = Duration::from_millis(1);
/// Interval at which a stalled writer checks for losses and shutdown.
const STALL_CHECK: Duration = Duration::from_millis(100);
/// Number of bytes that a writable pipe accepts without blocking (`PIPE_BUF`).
const PIPE_BYTES: usize = 4096;

/// Counters of lost log lines and failed writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct LogCounters {
    /// Lines that were not written because the queue was full or a write failed.
    pub(crate) lines_dropped: u64,
    /// Writes that failed.
    pub(crate) write_errors: u64,
}

#[derive(Debug, Default)]
struct Shared {
    /// Bytes in the queue, including those that are being written.
    queued: AtomicUsize,
    lines_dropped: AtomicU64,
    write_errors: AtomicU64,
    reopen: AtomicBool,
    /// Time at which the writer stops writing. Set at shutdown.
    shutdown_deadline: OnceLock<Instant>,
}

impl Shared {
    fn counters(&self) -> LogCounters {
        LogCounters {
            lines_dropped: self.lines_dropped.load(Ordering::Relaxed),
            write_errors: self.write_errors.load(Ordering::Relaxed),
        }
    }

    #[cold]
    fn count_dropped(&self, lines: &[u8]) {
        // Newlines within a line are escaped.
        let count = lines.iter().filter(|&&byte| byte == b'\n').count();
        self.lines_dropped.fetch_add(count as u64, Ordering::Relaxed);
    }
}

#[derive(Debug)]
enum Message {
    Lines(Vec<u8>),
    Reopen,
    Stop,
}

/// The sending side of the queue. It has no descriptor, so any thread can use it.
#[derive(Clone, Debug)]
pub(crate) struct LogSink {
    shared: Arc<Shared>,
    messages: Sender<Message>,
}

impl LogSink {
    /// Creates a queue and returns its two sides.
    fn new() -> (LogSink, Receiver<Message>) {
        let (messages, received) = mpsc::channel();
        (LogSink { shared: Arc::default(), messages }, received)
    }

    /// Queues complete lines without blocking. Drops and counts them if the queue is full.
    pub(crate) fn send(&self, lines: Vec<u8>) {
        let size = lines.len();
        let queued = self.shared.queued.fetch_add(size, Ordering::Relaxed);
        let unsent = if queued + size > QUEUE_BYTES {
            lines
        } else {
            match self.messages.send(Message::Lines(lines)) {
                Err(mpsc::SendError(Message::Lines(lines))) => lines,
                _ => return,
            }
        };
        self.shared.queued.fetch_sub(size, Ordering::Relaxed);
        self.shared.count_dropped(&unsent);
    }

    /// Reopens the file by its path, after the queued lines are written.
    pub(crate) fn reopen(&self) {
        if !self.shared.reopen.swap(true, Ordering::Relaxed) {
            let _ = self.messages.send(Message::Reopen);
        }
    }

    /// Returns the current counters.
    pub(crate) fn counters(&self) -> LogCounters {
        self.shared.counters()
    }
}

/// The access log of a simulated server, which collects the lines in memory.
#[cfg(feature = "simulation")]
#[derive(Debug)]
pub(crate) struct LogCollector {
    sink: LogSink,
    messages: Receiver<Message>,
}

#[cfg(feature = "simulation")]
impl LogCollector {
    /// Creates an empty log.
    pub(crate) fn new() -> LogCollector {
        let (sink, messages) = LogSink::new();
        LogCollector { sink, messages }
    }

    /// Returns a sending side for a worker.
    pub(crate) fn sink(&self) -> LogSink {
        self.sink.clone()
    }

    /// Removes and returns the queued lines.
    pub(crate) fn take(&self) -> Vec<u8> {
        let mut all = Vec::new();
        for message in self.messages.try_iter() {
            match message {
                Message::Lines(lines) => all.extend_from_slice(&lines),
                Message::Reopen => self.sink.shared.reopen.store(false, Ordering::Relaxed),
                Message::Stop => {}
            }
        }
        self.sink.shared.queued.fetch_sub(all.len(), Ordering::Relaxed);
        all
    }
}

/// The access log of a server: its file, its queue and its writer thread.
///
/// Dropping it writes the queued lines for at most one second.
#[derive(Debug)]
pub(crate) struct LogWriter {
    sink: LogSink,
    path: PathBuf,
    thread: Option<JoinHandle<()>>,
}

impl LogWriter {
    /// Opens `path` for appending and starts the writer thread. `-` is standard output.
    ///
    /// # Errors
    /// The file cannot be opened, a FIFO has no reader (`ENXIO`), or the thread cannot be started.
    pub(crate) fn start(path: &Path) -> io::Result<LogWriter> {
        LogWriter::start_reporting(path, report_on_stderr)
    }

    /// Starts a writer that reports losses and errors to `report`.
    pub(super) fn start_reporting(
        path: &Path,
        report: impl Fn(&str) + Send + 'static,
    ) -> io::Result<LogWriter> {
        let output = Output::open(path)?;
        let (sink, received) = LogSink::new();
        let writer = Writer {
            output,
            path: path.to_owned(),
            shared: sink.shared.clone(),
            messages: received,
            buffer: Vec::new(),
            in_line: false,
            report: Box::new(report),
            reported: LogCounters::default(),
            quiet_until: None,
            error: None,
        };
        let thread = thread::Builder::new().name("access-log".to_owned());
        let thread = thread.spawn(move || writer.run())?;
        Ok(LogWriter { sink, path: path.to_owned(), thread: Some(thread) })
    }

    /// Returns a sending side for a worker.
    pub(crate) fn sink(&self) -> LogSink {
        self.sink.clone()
    }
}

impl Deref for LogWriter {
    type Target = LogSink;

    fn deref(&self) -> &LogSink {
        &self.sink
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        let deadline = Instant::now() + DRAIN_TIMEOUT;
        let _ = self.sink.shared.shutdown_deadline.set(deadline);
        let _ = self.sink.messages.send(Message::Stop);
        let Some(thread) = self.thread.take() else { return };
        while !thread.is_finished() {
            if Instant::now() >= deadline + 3 * STALL_CHECK {
                // The thread is blocked in the kernel, for example by a dead network file system, so
                // joining it would block.
                return report_on_stderr(&format!(
                    "access log '{}': lost {} bytes at shutdown: write is blocked",
                    self.path.display(),
                    self.sink.shared.queued.load(Ordering::Relaxed),
                ));
            }
            thread::sleep(WRITE_INTERVAL);
        }
        let _ = thread.join();
    }
}

/// Writes a message to stderr unless that would block.
fn report_on_stderr(message: &str) {
    let stderr = io::stderr();
    let mut fds = [PollFd::new(&stderr, PollFlags::OUT)];
    if poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0) {
        // `eprintln!` would wait for the lock, which another thread may hold.
        let line = format!("hearken: {message}\n");
        let _ = rustix::io::write(&stderr, line.as_bytes());
    }
}

/// The open log file.
#[derive(Debug)]
struct Output {
    file: File,
    /// Whether the output is a regular file, which needs no poll.
    is_regular: bool,
}

impl Output {
    fn open(path: &Path) -> io::Result<Output> {
        let file = if path == Path::new("-") {
            io::stdout().as_fd().try_clone_to_owned()?.into()
        } else {
            // O_NONBLOCK: opening a FIFO without a reader must not block.
            let flags = OFlags::NONBLOCK.bits().cast_signed();
            OpenOptions::new().append(true).create(true).custom_flags(flags).open(path)?
        };
        let is_regular = file.metadata()?.is_file();
        Ok(Output { file, is_regular })
    }
}

/// The state of the writer thread.
struct Writer {
    output: Output,
    path: PathBuf,
    shared: Arc<Shared>,
    messages: Receiver<Message>,
    /// Lines to write next.
    buffer: Vec<u8>,
    /// Whether the last write ended within a line.
    in_line: bool,
    report: Box<dyn Fn(&str) + Send>,
    /// Counters at the last report.
    reported: LogCounters,
    quiet_until: Option<Instant>,
    /// The last write error that was not reported.
    error: Option<io::Error>,
}

impl Writer {
    fn run(mut self) {
        while let Some(message) = self.next() {
            match message {
                Message::Lines(lines) if self.buffer.is_empty() => self.buffer = lines,
                Message::Lines(lines) => self.buffer.extend_from_slice(&lines),
                Message::Reopen => {
                    self.write_buffer();
                    self.reopen();
                }
                Message::Stop => break,
            }
        }
        self.write_buffer();
        while let Ok(message) = self.messages.try_recv() {
            if let Message::Lines(lines) = message {
                self.shared.count_dropped(&lines);
            }
        }
        self.report_now();
    }

    /// Returns the next message. Writes the buffer before, if it is large or no message is queued.
    fn next(&mut self) -> Option<Message> {
        if self.buffer.len() < BATCH_BYTES
            && let Ok(message) = self.messages.try_recv()
        {
            return Some(message);
        }
        if !self.buffer.is_empty() {
            self.write_buffer();
            self.report_losses();
            thread::sleep(WRITE_INTERVAL);
        }
        loop {
            let quiet = self.quiet_until.filter(|_| self.shared.counters() != self.reported);
            let Some(until) = quiet else { return self.messages.recv().ok() };
            match self.messages.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(message) => return Some(message),
                Err(RecvTimeoutError::Timeout) => self.report_losses(),
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    fn reopen(&mut self) {
        self.shared.reopen.store(false, Ordering::Relaxed);
        match Output::open(&self.path) {
            Ok(output) => {
                self.output = output;
                self.in_line = false;
            }
            Err(error) => (self.report)(&format!(
                "access log '{}': cannot reopen: {error}; continuing with the old file",
                self.path.display(),
            )),
        }
    }

    /// Writes the buffer and counts lines that could not be written.
    fn write_buffer(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        let mut left = buffer.as_slice();
        let mut result = Ok(());
        if self.in_line && !left.is_empty() {
            let mut newline: &[u8] = b"\n";
            result = self.write(&mut newline);
            self.in_line = !newline.is_empty();
        }
        if !self.in_line {
            result = self.write(&mut left);
            let written = buffer.len() - left.len();
            self.in_line = !buffer[..written].ends_with(b"\n") && written > 0;
        }
        self.shared.count_dropped(left);
        if let Err(error) = result {
            self.shared.write_errors.fetch_add(1, Ordering::Relaxed);
            self.error = Some(error);
        }
        self.shared.queued.fetch_sub(buffer.len(), Ordering::Relaxed);
    }

    /// Writes `left` and advances it past the written bytes. Returns early at shutdown.
    fn write(&mut self, left: &mut &[u8]) -> io::Result<()> {
        while !left.is_empty() {
            if !self.output.is_regular && !self.wait_writable() {
                return Ok(());
            }
            let max = if self.output.is_regular { left.len() } else { PIPE_BYTES };
            match (&self.output.file).write(&left[..max.min(left.len())]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => *left = &left[count..],
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => {}
                    _ => return Err(error),
                },
            }
        }
        Ok(())
    }

    /// Waits until the output is writable. Returns false if the shutdown deadline has passed.
    fn wait_writable(&mut self) -> bool {
        loop {
            let left = self.shared.shutdown_deadline.get().map_or(STALL_CHECK, |at| {
                at.saturating_duration_since(Instant::now()).min(STALL_CHECK)
            });
            if left.is_zero() {
                return false;
            }
            let mut fds = [PollFd::new(&self.output.file, PollFlags::OUT)];
            match poll(&mut fds, Timespec::try_from(left).ok().as_ref()) {
                Ok(0) => self.report_losses(),
                Err(rustix::io::Errno::INTR) => {}
                // The write reports an error of the descriptor.
                _ => return true,
            }
        }
    }

    /// Reports losses, unless the last report is recent or the server is stopping.
    fn report_losses(&mut self) {
        let is_recent = self.quiet_until.is_some_and(|until| Instant::now() < until);
        if !is_recent && self.shared.shutdown_deadline.get().is_none() {
            self.report_now();
        }
    }

    /// Reports any losses since the last report.
    fn report_now(&mut self) {
        let counters = self.shared.counters();
        if counters == self.reported {
            return;
        }
        let lines = counters.lines_dropped - self.reported.lines_dropped;
        let path = self.path.display();
        let message = match self.error.take() {
            Some(error) => {
                format!("access log '{path}': cannot write: {error}; lines lost: {lines}")
            }
            None => format!("access log '{path}': the reader is too slow; lines lost: {lines}"),
        };
        (self.report)(&message);
        self.reported = counters;
        self.quiet_until = Some(Instant::now() + REPORT_INTERVAL);
    }
}

#[cfg(test)]
mod tests;
