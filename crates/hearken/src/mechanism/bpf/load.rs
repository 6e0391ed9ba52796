//! Loads and attaches the programs with aya.
//!
//! a) The array of descriptors is kernel memory, 16 bytes each. Its size is the current limit of
//!    open files, within bounds. Raise the limit before loading.
//! b) The programs see process IDs of the outermost namespace. This process may run in another one,
//!    which it passes to them.

use std::io;
use std::os::fd::AsFd;

use aya::maps::{Map, MapError};
use aya::programs::{FEntry, Lsm, Program, ProgramError};
use aya::{Btf, Ebpf, EbpfError, EbpfLoader};
use rustix::process::{Resource, getrlimit};

use super::layout::{Mapping, QUEUES, Shared};
use super::privileges::remedy;
use crate::mechanism::Unavailable;

/// The owner of the programs' attachment.
pub(super) type Attached = Ebpf;

/// A byte array with the alignment that reading an object file in place requires.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!("signal_queue.bpf.o"));

/// Minimum and maximum size of the array of descriptors.
const MIN_SLOTS: u64 = 1 << 16;
const MAX_SLOTS: u64 = 1 << 20;

pub(super) fn load() -> Result<(Shared, Attached), Unavailable> {
    let types = Btf::from_sys_fs().map_err(|error| Unavailable {
        call: "open(\"/sys/kernel/btf/vmlinux\")",
        error: io::Error::other(error),
        remedy: "it needs a kernel built with CONFIG_DEBUG_INFO_BTF, and a mounted /sys",
    })?;
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(MAX_SLOTS);
    let limit = limit.clamp(MIN_SLOTS, MAX_SLOTS); // (a)
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

    // Without the first program, the second would treat every signal as unattributed.
    let entry: &mut FEntry = typed(&mut programs, "leave_note")?;
    entry.load("send_sigio_to_task", &types).map_err(|error| Unavailable {
        call: "bpf(BPF_PROG_LOAD) of type tracing, fentry/send_sigio_to_task",
        error: program_error(error),
        remedy: remedy(),
    })?;
    entry.attach().map_err(|error| Unavailable {
        call: "bpf(BPF_RAW_TRACEPOINT_OPEN) for fentry/send_sigio_to_task",
        error: program_error(error),
        remedy: "it needs a kernel built with CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS",
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
        remedy: "it needs a kernel built with CONFIG_BPF_LSM",
    })?;

    let map = |name: &'static str, len: usize| match programs.map(name) {
        Some(Map::Array(map)) => Ok((map.fd().as_fd(), len)),
        _ => Err(invalid_object("the eBPF object lacks a map")),
    };
    let refused = |error| {
        let remedy = "raise the limit of address space";
        Unavailable { call: "mmap of a bpf array", error, remedy }
    };
    let (slots, len) = map("slots", limit as usize)?;
    // SAFETY: the map was created with `len` entries of the layout that both sides share.
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
    program.ok_or_else(|| invalid_object("the eBPF object lacks a program"))
}

fn invalid_object(call: &'static str) -> Unavailable {
    let error = io::ErrorKind::InvalidData.into();
    Unavailable { call, error, remedy: "run scripts/bpf and build again" }
}

/// Returns the device and inode of this process's PID namespace in the kernel's encoding.
fn namespace() -> Result<(u64, u64), Unavailable> {
    let stat = rustix::fs::stat("/proc/self/ns/pid").map_err(|errno| Unavailable {
        call: "stat(\"/proc/self/ns/pid\")",
        error: errno.into(),
        remedy: "mount /proc",
    })?;
    let (major, minor) = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    Ok((u64::from(major) << 20 | u64::from(minor), stat.st_ino))
}

/// Returns the kernel's error if `error` contains one.
fn program_error(error: ProgramError) -> io::Error {
    match error {
        // The log of the verifier, if any, explains the error.
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
