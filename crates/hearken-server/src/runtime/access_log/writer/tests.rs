//! The writer with stalled readers and failing files.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;

use super::*;

const TIMEOUT: Duration = Duration::from_secs(60);
const LINE: &[u8] = b"0123456789 0123456789 0123456789 0123456789 0123456789\n";

/// Creates a FIFO and its non-blocking reading end.
fn fifo(dir: &TempDir) -> (PathBuf, File) {
    let path = dir.path().join("fifo");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let reader = File::options().read(true).custom_flags(flags).open(&path).unwrap();
    (path, reader)
}

fn start(path: &Path) -> (LogWriter, Receiver<String>) {
    let (reports, reported) = mpsc::channel();
    let report = move |message: &str| drop(reports.send(message.to_owned()));
    (LogWriter::start_reporting(path, report).unwrap(), reported)
}

/// Sends `lines` lines, ten at a time.
fn send(sink: &LogSink, lines: usize) {
    for _ in 0..lines / 10 {
        sink.send(LINE.repeat(10));
    }
}

fn wait_until(condition: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < TIMEOUT, "not in time: {condition}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Reads all bytes from the pipe.
fn read(reader: &mut File, into: &mut Vec<u8>) {
    // Ends with `WouldBlock` as long as there is a writer.
    let _ = reader.read_to_end(into);
}

fn whole_lines(text: &[u8]) -> u64 {
    let whole = text.split_inclusive(|&byte| byte == b'\n').filter(|&line| line == LINE);
    whole.count() as u64
}

#[test]
fn a_full_queue_drops_lines_and_counts_them() {
    const LINES: usize = 2 * QUEUE_BYTES / LINE.len() / 10 * 10;
    let dir = TempDir::new().unwrap();
    let (path, mut reader) = fifo(&dir);
    let (writer, reports) = start(&path);
    let sink = writer.sink();
    send(&sink, LINES);
    let dropped = writer.counters().lines_dropped;
    assert!(dropped > 0 && dropped < LINES as u64, "{dropped}");
    assert!(writer.shared.queued.load(Ordering::Relaxed) <= QUEUE_BYTES);
    // The writer reports although it waits for the reader.
    let report = reports.recv_timeout(TIMEOUT).unwrap();
    assert!(report.contains(&format!("the reader is too slow; lines lost: {dropped}")), "{report}");
    let mut text = Vec::new();
    wait_until("the reader gets the other lines", || {
        read(&mut reader, &mut text);
        whole_lines(&text) + dropped == LINES as u64
    });
    assert_eq!(text.len() % LINE.len(), 0);
    wait_until("the queue is empty", || writer.shared.queued.load(Ordering::Relaxed) == 0);
    // The queue has capacity again.
    send(&sink, 10);
    wait_until("the reader gets new lines", || {
        read(&mut reader, &mut text);
        whole_lines(&text) + dropped == LINES as u64 + 10
    });
    assert_eq!(writer.counters(), LogCounters { lines_dropped: dropped, write_errors: 0 });
}

#[test]
fn shutdown_drops_lines_if_the_reader_is_stalled() {
    const LINES: usize = 5_000;
    let dir = TempDir::new().unwrap();
    let (path, mut reader) = fifo(&dir);
    let (writer, reports) = start(&path);
    let sink = writer.sink();
    send(&sink, LINES);
    drop(writer);
    let mut text = Vec::new();
    read(&mut reader, &mut text);
    let dropped = sink.counters().lines_dropped;
    assert!(dropped > 0);
    assert_eq!(whole_lines(&text) + dropped, LINES as u64);
    assert!(reports.recv().unwrap().contains(&format!("lines lost: {dropped}")));
    send(&sink, 10);
    assert_eq!(sink.counters().lines_dropped, dropped + 10);
}

#[test]
fn shutdown_writes_queued_lines() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("log");
    let (writer, reports) = start(&path);
    send(&writer, 10_000);
    drop(writer);
    assert_eq!(whole_lines(&fs::read(path).unwrap()), 10_000);
    assert!(reports.recv().is_err());
}

#[test]
fn counts_write_errors_and_limits_reports() {
    let (writer, reports) = start(Path::new("/dev/full"));
    send(&writer, 10);
    let report = reports.recv_timeout(TIMEOUT).unwrap();
    assert!(report.contains("'/dev/full': cannot write: No space left on device"), "{report}");
    assert!(report.ends_with("lines lost: 10"), "{report}");
    assert_eq!(writer.counters(), LogCounters { lines_dropped: 10, write_errors: 1 });
    for round in 2..5 {
        send(&writer, 10);
        wait_until("the write fails", || writer.counters().lines_dropped == round * 10);
    }
    // The final report contains the other losses.
    drop(writer);
    let last: Vec<String> = reports.iter().collect();
    assert_eq!(last.len(), 1, "{last:?}");
    assert!(last[0].ends_with("lines lost: 30"), "{last:?}");
}

#[test]
fn counts_a_closed_reader_as_a_write_error() {
    let dir = TempDir::new().unwrap();
    let (path, reader) = fifo(&dir);
    let (writer, reports) = start(&path);
    drop(reader);
    send(&writer, 10);
    let report = reports.recv_timeout(TIMEOUT).unwrap();
    assert!(report.contains("cannot write: Broken pipe"), "{report}");
    drop(writer);
    // The start does not wait for a reader either.
    assert!(LogWriter::start(&path).is_err());
}

#[test]
fn reopens_a_renamed_file_after_writing_queued_lines() {
    let dir = TempDir::new().unwrap();
    let (path, old) = (dir.path().join("log"), dir.path().join("log.1"));
    let count = |path| whole_lines(&fs::read(path).unwrap_or_default());
    let (writer, reports) = start(&path);
    fs::rename(&path, &old).unwrap();
    send(&writer, 10);
    writer.reopen();
    send(&writer, 20);
    wait_until("the new file has the lines after", || count(&path) == 20);
    assert_eq!(count(&old), 10);

    // If the new file cannot be opened, the writer continues with the old one.
    fs::rename(&path, &old).unwrap();
    fs::create_dir(&path).unwrap();
    writer.reopen();
    let report = reports.recv_timeout(TIMEOUT).unwrap();
    assert!(report.contains("cannot reopen: Is a directory"), "{report}");
    send(&writer, 10);
    wait_until("the old file has the lines after", || count(&old) == 30);
    assert_eq!(writer.counters(), LogCounters::default());
}
