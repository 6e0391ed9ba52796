//! The SPECweb99-like file set: directories of 36 files each, of four classes of sizes.
//!
//! As in SPECweb99, `dir00000/class2_4` is the fifth file of class 2, and has 5 × 10 KB. Class 0
//! goes up in steps of 0.1 KB, class 1 of 1, class 2 of 10 and class 3 of 100 KB. A directory
//! takes 5,119,484 bytes.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use rustix::fs::statvfs;

use super::lines::{Lines, whole};
use crate::config::LoadError;

/// How many files a directory has.
pub(super) const FILES: usize = 36;

/// The most directories: their names have five digits.
pub const DIRECTORIES_MAX: u32 = 100_000;

/// Says what the file set consists of. It is written last, so that a file set without it is
/// incomplete.
const MANIFEST: &str = "specweb.manifest";

/// What [`make`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Made {
    /// How many files were written.
    pub written: u64,
    /// How many were already there.
    pub kept: u64,
    /// The size of all.
    pub bytes: u64,
}

/// How many directories SPECweb99 has for so many simultaneous connections: 680 for 1,000, which is
/// 3.5 GB.
pub fn directories_for(connections: u32) -> u32 {
    (25.0 + 400_000.0 / 122_000.0 * f64::from(connections) / 5.0) as u32
}

/// Makes a file set of so many directories in `dir`, and tells `progress` how many are there.
///
/// The contents depend on nothing but the name. Files that are already there with the right size
/// are left alone, so that what was interrupted goes on where it was.
///
/// # Errors
/// No directories or more than [`DIRECTORIES_MAX`], too little room, and what the kernel refuses.
pub fn make(
    dir: &Path,
    directories: u32,
    progress: &mut dyn FnMut(u32),
) -> Result<Made, LoadError> {
    if !(1..=DIRECTORIES_MAX).contains(&directories) {
        return Err(LoadError::Config("a file set has from 1 to 100,000 directories"));
    }
    let manifest = Manifest::usual(directories);
    let refused = |path: &Path, error: &dyn ToString| {
        whole(path, format!("cannot write it: {}", error.to_string()))
    };
    fs::create_dir_all(dir).map_err(|error| refused(dir, &error))?;
    check_room(dir, &manifest)?;
    let mut made = Made { bytes: manifest.bytes(), ..Made::default() };
    let mut text = Vec::new();
    for directory in 0..directories {
        let path = dir.join(directory_name(directory));
        fs::create_dir_all(&path).map_err(|error| refused(&path, &error))?;
        for (file, &size) in manifest.sizes.iter().enumerate() {
            let path = dir.join(name(directory, file));
            if is_there(&path, size) {
                made.kept += 1;
                continue;
            }
            fill(&mut text, u64::from(directory) * FILES as u64 + file as u64, size);
            fs::write(&path, &text).map_err(|error| refused(&path, &error))?;
            made.written += 1;
        }
        progress(directory + 1);
    }
    let (path, draft) = (dir.join(MANIFEST), dir.join(format!("{MANIFEST}.part")));
    fs::write(&draft, manifest.text())
        .and_then(|()| fs::rename(&draft, &path))
        .map_err(|error| refused(&path, &error))?;
    Ok(made)
}

fn is_there(path: &Path, size: u64) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() == size)
}

/// Whether what is missing has room.
fn check_room(dir: &Path, manifest: &Manifest) -> Result<(), LoadError> {
    let room = statvfs(dir)
        .map_err(|error| whole(dir, format!("cannot tell how much room is there: {error}")))?;
    let block = room.f_frsize.max(1);
    let (mut bytes, mut inodes) = (0, 0);
    for directory in 0..manifest.directories {
        for (file, &size) in manifest.sizes.iter().enumerate() {
            if !is_there(&dir.join(name(directory, file)), size) {
                bytes += size.next_multiple_of(block);
                inodes += 1;
            }
        }
    }
    let free = room.f_bavail.saturating_mul(block);
    // Some file systems do not say how much they hold.
    if room.f_blocks > 0 && bytes > free {
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        return Err(whole(
            dir,
            format!(
                "{} MiB are still to be written there, and {} MiB are free; ask for fewer directories",
                mib(bytes),
                mib(free)
            ),
        ));
    }
    if room.f_files > 0 && inodes > room.f_favail {
        let free = room.f_favail;
        return Err(whole(
            dir,
            format!("{inodes} files are still to be made there, and {free} inodes are free"),
        ));
    }
    Ok(())
}

/// Text that only `number` decides, now and in all versions: SplitMix64, six bits a letter.
fn fill(text: &mut Vec<u8>, number: u64, size: u64) {
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

/// The name of a file within the set.
pub(super) fn name(directory: u32, file: usize) -> String {
    format!("{}/{}", directory_name(directory), file_name(file))
}

fn file_name(file: usize) -> String {
    format!("class{}_{}", file / 9, file % 9)
}

/// How many directories there are, and how long each of their files is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Manifest {
    pub(super) directories: u32,
    pub(super) sizes: [u64; FILES],
}

impl Manifest {
    pub(super) fn usual(directories: u32) -> Manifest {
        let size = |file: usize| 1024 * 10u64.pow(file as u32 / 9) * (file as u64 % 9 + 1) / 10;
        Manifest { directories, sizes: std::array::from_fn(size) }
    }

    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.directories) * self.sizes.iter().sum::<u64>()
    }

    fn text(&self) -> String {
        let mut text =
            "# A SPECweb99-like file set: the length of each file of a directory.\n".to_owned();
        text += &format!("directories {}\n", self.directories);
        for (file, size) in self.sizes.iter().enumerate() {
            text += &format!("{} {size}\n", file_name(file));
        }
        text
    }

    /// Of the file set in `dir`.
    pub(super) fn read(dir: &Path) -> Result<Manifest, LoadError> {
        let path = dir.join(MANIFEST);
        if fs::metadata(&path).is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            return Err(whole(
                &path,
                "it is not there; make the file set first, with hearken load specweb --make".into(),
            ));
        }
        let mut lines = Lines::open(&path, b'\n')?;
        let (mut line, mut directories, mut sizes) = (Vec::new(), None, [None; FILES]);
        while lines.next(&mut line)? {
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let form = || lines.wrong("write NAME NUMBER, as directories 25 or class0_0 102");
            let text = str::from_utf8(&line).map_err(|_| form())?;
            let (key, value) = text.split_once(' ').ok_or_else(form)?;
            let value: u64 = value.parse().map_err(|_| form())?;
            let place = match key {
                "directories" => &mut directories,
                _ => match (0..FILES).find(|&file| file_name(file) == key) {
                    Some(file) => &mut sizes[file],
                    None => return Err(form()),
                },
            };
            let most = if key == "directories" { DIRECTORIES_MAX.into() } else { 1 << 40 };
            if !(1..=most).contains(&value) || place.replace(value).is_some() {
                return Err(lines.wrong("it is out of range, or there twice"));
            }
        }
        let missing = || whole(&path, "it is incomplete; make the file set again".to_owned());
        let directories = directories.ok_or_else(missing)? as u32;
        if sizes.contains(&None) {
            return Err(missing());
        }
        Ok(Manifest { directories, sizes: sizes.map(Option::unwrap_or_default) })
    }
}
