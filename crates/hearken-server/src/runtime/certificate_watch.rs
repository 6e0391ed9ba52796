//! Reads TLS certificates again when their files change.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hearken_tls::ServerTls;
use hearken_tls::server::ServerTlsError;

/// Interval of the checks.
const INTERVAL: Duration = Duration::from_secs(2);
/// Size of the thread's stack in bytes.
const STACK_BYTES: usize = 256 * 1024;

/// A thread that checks files at an interval. Dropping this ends it.
#[derive(Debug)]
pub(crate) struct CertificateWatch {
    /// Dropped to end the thread.
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl CertificateWatch {
    /// Starts the thread, which shares the caller's descriptor table and reports each result.
    pub(crate) fn start(
        tls: ServerTls,
        report: fn(&Result<(), ServerTlsError>),
    ) -> io::Result<CertificateWatch> {
        let (stop, stopped) = mpsc::channel();
        let thread = thread::Builder::new().name("certificates".to_owned()).stack_size(STACK_BYTES);
        let thread = thread.spawn(move || {
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                if let Some(result) = tls.reload_changed() {
                    report(&result);
                }
            }
        })?;
        Ok(CertificateWatch { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for CertificateWatch {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // The thread itself has reported a panic.
            let _ = thread.join();
        }
    }
}
