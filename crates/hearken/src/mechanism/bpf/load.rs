//! Loading and attaching the programs, with aya.
//!
//! a) The array of descriptors is memory of the kernel, 16 bytes each. It is made for the limit of
//!    open files of the moment, within bounds: raise that first.
//! b) The programs number processes as the outermost namespace does; this process may live in another,
//!    which it names to them.

use std::io;
use std::os::fd::AsFd;

use aya::maps::{Map, MapError};
use aya::programs::{FEntry, Lsm, Program, ProgramError};
use aya::{Btf, Ebpf, EbpfError, EbpfLoader};
use rustix::process::{Resource, getrlimit};

use super::layout::{Mapping, QUEUES, Shared};
use super::privileges::remedy;
use crate::mechanism::Unavailable;

/// What keeps the programs attached.
pub(super) type Attached = Ebpf;

/// An object file is read as it lies in memory.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!("signal_queue.bpf.o"));

/// How many descriptors there is room for.
const LEAST: u64 = 1 << 16;
const MOST: u64 = 1 << 20;

pub(super) fn load() -> Result<(Shared, Attached), Unavailable> {
    let types = Btf::from_sys_fs().map_err(|error| Unavailable {
        call: "open(\"/sys/kernel/btf/vmlinux\")",
        error: io::Error::other(error),
        remedy: "a kernel built with CONFIG_DEBUG_INFO_BTF, and /sys mounted",
    })?;
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(MOST).clamp(LEAST, MOST); // (a)
    let (device, inode) = namespace()?; // (b)
    let process = std::process::id();
    let mut programs = EbpfLoader::new()
        .btf(Some(&types))
        .map_max_entries("slots", limit as u32)
        .map_max_entries("queues", QUEUES)
        .override_global("namespace_device", &device, true)
        .override_global("namespace_inode", &inode, true)
        .override_global("process", &process, true)
        .load(&OBJECT.0)
        .map_err(|error| Unavailable {
            call: "bpf(BPF_MAP_CREATE)",
            error: map_error(error),
            remedy: remedy(),
        })?;

    // Without the first, the second would let every signal pass as a stray.
    let entry: &mut FEntry = typed(&mut programs, "leave_note")?;
    entry.load("send_sigio_to_task", &types).map_err(|error| Unavailable {
        call: "bpf(BPF_PROG_LOAD) of type tracing, fentry/send_sigio_to_task",
        error: program_error(error),
        remedy: remedy(),
    })?;
    entry.attach().map_err(|error| Unavailable {
        call: "bpf(BPF_RAW_TRACEPOINT_OPEN) for fentry/send_sigio_to_task",
        error: program_error(error),
        remedy: "a kernel built with CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS",
    })?;
    let hook: &mut Lsm = typed(&mut programs, "decide")?;
    hook.load("file_send_sigiotask", &types).map_err(|error| Unavailable {
        call: "bpf(BPF_PROG_LOAD) of type lsm, lsm/file_send_sigiotask",
        error: program_error(error),
        remedy: remedy(),
    })?;
    hook.attach().map_err(|error| Unavailable {
        call: "bpf(BPF_RAW_TRACEPOINT_OPEN) for lsm/file_send_sigiotask",
        error: program_error(error),
        remedy: "a kernel built with CONFIG_BPF_LSM",
    })?;

    let map = |name: &'static str, len: usize| match programs.map(name) {
        Some(Map::Array(map)) => Ok((map.fd().as_fd(), len)),
        _ => Err(broken("the programs' object lacks a map")),
    };
    let refused = |error| {
        let remedy = "raise the limit of address space";
        Unavailable { call: "mmap of a bpf array", error, remedy }
    };
    let (slots, len) = map("slots", limit as usize)?;
    // SAFETY: the map was made with so many entries, of the layout that both sides know.
    let slots = unsafe { Mapping::new(slots, len) }.map_err(refused)?;
    let (queues, len) = map("queues", QUEUES as usize)?;
    // SAFETY: as above.
    let queues = unsafe { Mapping::new(queues, len) }.map_err(refused)?;
    Ok((Shared { slots, queues }, programs))
}

fn typed<'a, P>(programs: &'a mut Ebpf, name: &str) -> Result<&'a mut P, Unavailable>
where
    &'a mut P: TryFrom<&'a mut Program>,
{
    let program = programs.program_mut(name).and_then(|program| program.try_into().ok());
    program.ok_or_else(|| broken("the programs' object lacks a program"))
}

fn broken(what: &'static str) -> Unavailable {
    let error = io::ErrorKind::InvalidData.into();
    Unavailable { call: what, error, remedy: "run scripts/bpf and build again" }
}

/// This process's namespace of processes, as the kernel writes the numbers.
fn namespace() -> Result<(u64, u64), Unavailable> {
    let stat = rustix::fs::stat("/proc/self/ns/pid").map_err(|errno| Unavailable {
        call: "stat(\"/proc/self/ns/pid\")",
        error: errno.into(),
        remedy: "mount /proc",
    })?;
    let (major, minor) = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    Ok((u64::from(major) << 20 | u64::from(minor), stat.st_ino))
}

/// The kernel's answer, where there is one in it.
fn program_error(error: ProgramError) -> io::Error {
    match error {
        // What the verifier wrote, if anything, is a reason.
        ProgramError::LoadError { io_error, verifier_log }
            if io_error.raw_os_error() != Some(libc::EPERM) =>
        {
            io::Error::new(io_error.kind(), format!("{io_error}. {verifier_log}"))
        }
        ProgramError::LoadError { io_error, .. } => io_error,
        ProgramError::SyscallError(error) => error.io_error,
        error => io::Error::other(error),
    }
}

fn map_error(error: EbpfError) -> io::Error {
    match error {
        EbpfError::MapError(MapError::CreateError { io_error, .. }) => io_error,
        EbpfError::MapError(MapError::SyscallError(error)) => error.io_error,
        error => io::Error::other(error),
    }
}
