//! Files of ticket keys, which several servers share.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::pem::{self, FileError};

/// Sizes in bytes of a key: for this program, and as nginx and haproxy create them.
const SIZES: [usize; 2] = [80, 32];

/// Maximum number of keys.
const MAX_KEYS: usize = 64;

/// Reads the keys in a file: lines in Base64, or the bytes of the keys one after another.
///
/// # Errors
/// The file cannot be read, or contains no keys of a valid size.
pub(super) fn read(path: &Path) -> Result<Vec<Vec<u8>>, FileError> {
    let content = pem::read(path)?;
    let keys = match content.is_ascii() {
        true => lines(path, &content)?,
        false => pieces(&content),
    };
    match keys.len() {
        1..=MAX_KEYS => Ok(keys),
        0 => {
            let form = "expected keys of 32 or 80 bytes, as from 'openssl rand -base64 32'";
            Err(FileError::new(path, form))
        }
        count => Err(FileError::new(path, format!("{count} keys exceed the limit of {MAX_KEYS}"))),
    }
}

fn lines(path: &Path, content: &[u8]) -> Result<Vec<Vec<u8>>, FileError> {
    let mut keys = Vec::new();
    for (number, line) in (1..).zip(content.split(|&byte| byte == b'\n')) {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let key = STANDARD.decode(line).ok();
        let key = key.filter(|key| SIZES.contains(&key.len())).ok_or_else(|| {
            let reason = format!("line {number}: expected 32 or 80 bytes in Base64");
            FileError::new(path, reason)
        })?;
        keys.push(key);
    }
    Ok(keys)
}

fn pieces(content: &[u8]) -> Vec<Vec<u8>> {
    let size = SIZES.into_iter().find(|size| content.len().is_multiple_of(*size));
    let pieces = size.map(|size| content.chunks(size)).into_iter().flatten();
    pieces.map(<[u8]>::to_vec).collect()
}
