//! SPECweb99-like file sets: directories of 36 files each, in four size classes.
//!
//! As in SPECweb99, `dir00000/class2_4` is the fifth file of class 2 and has 5 × 10 KB. Sizes increase in
//! steps of 0.1, 1, 10 and 100 KB in classes 0 to 3. A directory occupies 5,119,484 bytes.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use rustix::fs::statvfs;

use super::lines::{Lines, file_error};
use crate::config::LoadError;

/// Number of files per directory.
pub(super) const FILES: usize = 36;

/// Maximum number of directories. Their names have five digits.
pub const MAX_DIRECTORIES: u32 = 100_000;

/// File name of the manifest, which describes the file set. It is written last, so that a file set without
/// a manifest is incomplete.
const MANIFEST: &str = "specweb.manifest";

/// The result of [`create`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct FileSetSummary {
    /// Number of files written.
    pub written: u64,
    /// Number of files that existed already.
    pub existing: u64,
    /// Total size of the file set in bytes.
    pub bytes: u64,
}

/// Returns the number of directories that SPECweb99 uses for this number of simultaneous connections.
///
/// For 1,000 connections, these are 680 directories with 3.5 GB.
pub fn directories_for(connections: u32) -> u32 {
    (25.0 + 400_000.0 / 122_000.0 * f64::from(connections) / 5.0) as u32
}

/// Creates a file set of `directories` directories in `dir`. Reports the number of complete directories to
/// `progress`.
///
/// The content of a file depends only on its name. Existing files of the right size are left unchanged, so
/// that an interrupted run can be resumed.
///
/// # Errors
/// The number of directories is not in `1..=MAX_DIRECTORIES`, there is too little free space, or writing
/// fails.
pub fn create(
    dir: &Path,
    directories: u32,
    progress: &mut dyn FnMut(u32),
) -> Result<FileSetSummary, LoadError> {
    if !(1..=MAX_DIRECTORIES).contains(&directories) {
        return Err(LoadError::Config("the number of directories must be from 1 to 100,000"));
    }
    let manifest = Manifest::standard(directories);
    let write_error = |path: &Path, error: &dyn ToString| {
        file_error(path, format!("cannot write: {}", error.to_string()))
    };
    fs::create_dir_all(dir).map_err(|error| write_error(dir, &error))?;
    check_free_space(dir, &manifest)?;
    let mut summary = FileSetSummary { bytes: manifest.bytes(), ..FileSetSummary::default() };
    let mut text = Vec::new();
    for directory in 0..directories {
        let path = dir.join(directory_name(directory));
        fs::create_dir_all(&path).map_err(|error| write_error(&path, &error))?;
        for (file, &size) in manifest.sizes.iter().enumerate() {
            let path = dir.join(name(directory, file));
            if exists_with_size(&path, size) {
                summary.existing += 1;
                continue;
            }
            fill_text(&mut text, u64::from(directory) * FILES as u64 + file as u64, size);
            fs::write(&path, &text).map_err(|error| write_error(&path, &error))?;
            summary.written += 1;
        }
        progress(directory + 1);
    }
    let (path, draft) = (dir.join(MANIFEST), dir.join(format!("{MANIFEST}.part")));
    fs::write(&draft, manifest.text())
        .and_then(|()| fs::rename(&draft, &path))
        .map_err(|error| write_error(&path, &error))?;
    Ok(summary)
}

fn exists_with_size(path: &Path, size: u64) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() == size)
}

/// Checks that there is enough free space for the missing files.
fn check_free_space(dir: &Path, manifest: &Manifest) -> Result<(), LoadError> {
    let space = statvfs(dir)
        .map_err(|error| file_error(dir, format!("cannot determine free space: {error}")))?;
    let block = space.f_frsize.max(1);
    let (mut bytes, mut inodes) = (0, 0);
    for directory in 0..manifest.directories {
        for (file, &size) in manifest.sizes.iter().enumerate() {
            if !exists_with_size(&dir.join(name(directory, file)), size) {
                bytes += size.next_multiple_of(block);
                inodes += 1;
            }
        }
    }
    let free = space.f_bavail.saturating_mul(block);
    // Some file systems do not report their capacity.
    if space.f_blocks > 0 && bytes > free {
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        return Err(file_error(
            dir,
            format!(
                "not enough free space: {} MiB required, {} MiB available; use fewer directories",
                mib(bytes),
                mib(free)
            ),
        ));
    }
    if space.f_files > 0 && inodes > space.f_favail {
        let free = space.f_favail;
        return Err(file_error(
            dir,
            format!("not enough free inodes: {inodes} required, {free} available"),
        ));
    }
    Ok(())
}

/// Fills `text` with characters that depend only on `number`: SplitMix64, six bits per character. The
/// algorithm must not change between versions.
fn fill_text(text: &mut Vec<u8>, number: u64, size: u64) {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 .";
    text.clear();
    let mut state = number.wrapping_mul(0xd134_2543_de82_ef95);
    while (text.len() as u64) < size {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        for _ in 0..10 {
            text.push(LETTERS[(bits & 63) as usize]);
            bits >>= 6;
        }
    }
    text.truncate(size as usize);
    text.iter_mut().skip(79).step_by(80).for_each(|end| *end = b'\n');
}

fn directory_name(directory: u32) -> String {
    format!("dir{directory:05}")
}

/// Returns the name of a file within the set.
pub(super) fn name(directory: u32, file: usize) -> String {
    format!("{}/{}", directory_name(directory), file_name(file))
}

fn file_name(file: usize) -> String {
    format!("class{}_{}", file / 9, file % 9)
}

/// The number of directories and the size of each file in a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Manifest {
    pub(super) directories: u32,
    pub(super) sizes: [u64; FILES],
}

impl Manifest {
    pub(super) fn standard(directories: u32) -> Manifest {
        let size = |file: usize| 1024 * 10u64.pow(file as u32 / 9) * (file as u64 % 9 + 1) / 10;
        Manifest { directories, sizes: std::array::from_fn(size) }
    }

    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.directories) * self.sizes.iter().sum::<u64>()
    }

    fn text(&self) -> String {
        let mut text =
            "# SPECweb99-like file set: number of directories and file sizes in bytes\n".to_owned();
        text += &format!("directories {}\n", self.directories);
        for (file, size) in self.sizes.iter().enumerate() {
            text += &format!("{} {size}\n", file_name(file));
        }
        text
    }

    /// Reads the manifest of the file set in `dir`.
    pub(super) fn read(dir: &Path) -> Result<Manifest, LoadError> {
        let path = dir.join(MANIFEST);
        if fs::metadata(&path).is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            return Err(file_error(
                &path,
                "no such file; create the file set with 'hearken load specweb --make'".into(),
            ));
        }
        let mut lines = Lines::open(&path, b'\n')?;
        let (mut line, mut directories, mut sizes) = (Vec::new(), None, [None; FILES]);
        while lines.next(&mut line)? {
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let invalid =
                || lines.error("invalid line; expected 'NAME NUMBER', as in 'directories 25'");
            let text = str::from_utf8(&line).map_err(|_| invalid())?;
            let (key, value) = text.split_once(' ').ok_or_else(invalid)?;
            let value: u64 = value.parse().map_err(|_| invalid())?;
            let slot = match key {
                "directories" => &mut directories,
                _ => match (0..FILES).find(|&file| file_name(file) == key) {
                    Some(file) => &mut sizes[file],
                    None => return Err(invalid()),
                },
            };
            let max = if key == "directories" { MAX_DIRECTORIES.into() } else { 1 << 40 };
            if !(1..=max).contains(&value) || slot.replace(value).is_some() {
                return Err(lines.error("number out of range or repeated name"));
            }
        }
        let missing =
            || file_error(&path, "incomplete manifest; create the file set again".to_owned());
        let directories = directories.ok_or_else(missing)? as u32;
        if sizes.contains(&None) {
            return Err(missing());
        }
        Ok(Manifest { directories, sizes: sizes.map(Option::unwrap_or_default) })
    }
}
