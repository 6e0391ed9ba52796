//! Metrics of the process, with the names of the official Prometheus clients. Values that the kernel
//! does not provide are omitted.

use std::fs;

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::Metrics;
use super::exposition::{Page, Seconds};

pub(super) fn render(metrics: &Metrics, out: &mut String) {
    let mut page = Page { out };
    let mut one = |name: &str, kind: &str, help: &str, value: &dyn std::fmt::Display| {
        page.family(name, kind, help);
        page.sample(name, &[], value);
    };
    let nanoseconds =
        |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let started = Seconds(nanoseconds(metrics.started));
    one(
        "process_start_time_seconds",
        "gauge",
        "Start time of the process since the Unix epoch.",
        &started,
    );
    let cpu = clock_gettime(ClockId::ProcessCPUTime).try_into().unwrap_or_default();
    let cpu = Seconds(nanoseconds(cpu));
    one("process_cpu_seconds_total", "counter", "User and system processor time.", &cpu);

    let page_size = rustix::param::page_size() as u64;
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let mut pages = statm.split(' ').map_while(|pages| pages.parse::<u64>().ok());
    if let (Some(virtual_pages), Some(resident)) = (pages.next(), pages.next()) {
        let (all, resident) = (virtual_pages * page_size, resident * page_size);
        one("process_virtual_memory_bytes", "gauge", "Virtual memory size.", &all);
        one("process_resident_memory_bytes", "gauge", "Resident memory size.", &resident);
    }

    let own: Vec<u64> =
        metrics.workers.iter().filter_map(|worker| worker.thread_of_table()).collect();
    let tables = own.iter().map(|thread| format!("/proc/self/task/{thread}/fd"));
    // The table of a worker that has ended does not exist any more.
    let tables: Vec<u64> = tables
        .chain(["/proc/self/fd".to_owned()])
        .filter_map(|table| count_descriptors(&table))
        .collect();
    if !tables.is_empty() {
        let open: u64 = tables.iter().sum();
        one("process_open_fds", "gauge", "Open file descriptors in all descriptor tables.", &open);
    }
    if let Some(limit) = getrlimit(Resource::Nofile).current {
        let limit = limit.saturating_mul(own.len() as u64 + 1);
        one(
            "process_max_fds",
            "gauge",
            "Maximum number of open file descriptors in all descriptor tables.",
            &limit,
        );
    }
}

/// Returns the number of descriptors in a table. Since Linux 6.2, it is the size of the directory.
fn count_descriptors(table: &str) -> Option<u64> {
    match fs::metadata(table).ok()?.len() {
        0 => Some(fs::read_dir(table).ok()?.count() as u64),
        size => Some(size),
    }
}
