//! Encoding of field blocks.
//!
//! Fields that are likely to be repeated on a connection enter the dynamic table, Huffman-coded. All others
//! are literals without Huffman coding, which cost the fewest instructions. Credentials and cookies are
//! marked as never indexed (RFC 7541 section 7.1), because a proxy sends fields of many clients on one
//! connection.

use super::dynamic_table::{DynamicTable, MAX_TABLE_BYTES};
use super::static_table::{STATIC_TABLE, find_name};
use super::{DEFAULT_TABLE_BYTES, huffman, integer};

/// Number of slots of the index.
const SLOTS: usize = 64;
/// Maximum length of a name that enters the table or is not in the static table.
const MAX_NAME_BYTES: usize = 64;
/// Maximum length of a value that enters the table.
const MAX_VALUE_BYTES: usize = 256;

/// Indices of entries of the static table.
const AUTHORITY: usize = 1;
const METHOD: usize = 2;
const PATH: usize = 4;
const SCHEME_HTTP: usize = 6;
const SCHEME_HTTPS: usize = 7;
const STATUS: usize = 8;

/// An encoder of field blocks with its dynamic table.
#[derive(Debug)]
pub(in crate::h2) struct Encoder {
    table: DynamicTable,
    /// Maximum size of the table by our own choice.
    max_size: usize,
    /// The smallest size since the last block and the current size, if the next block must announce them.
    update: Option<(usize, usize)>,
    /// Number of the last entry with each hash, counted from the first insertion.
    index: [u16; SLOTS],
    inserted: u16,
}

/// The treatment of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Indexing {
    /// Likely to be repeated.
    Incremental,
    None,
    /// Confidential.
    Never,
}

impl Encoder {
    /// Creates an encoder whose table has at most `max_size` bytes.
    pub(in crate::h2) fn new(max_size: usize) -> Self {
        let size = max_size.min(DEFAULT_TABLE_BYTES);
        Self {
            table: DynamicTable::new(size),
            max_size: max_size.min(MAX_TABLE_BYTES),
            update: (size < DEFAULT_TABLE_BYTES).then_some((size, size)),
            index: [0; SLOTS],
            inserted: 0,
        }
    }

    /// Sets the maximum size of the table that the peer permits.
    pub(in crate::h2) fn set_limit(&mut self, bytes: usize) {
        let size = bytes.min(self.max_size);
        if size != self.table.max_size() || self.update.is_some() {
            let smallest = self.update.map_or(size, |(smallest, _)| smallest.min(size));
            self.update = Some((smallest, size));
            self.table.set_max_size(size);
        }
    }

    /// Begins a block.
    #[inline(always)]
    pub(in crate::h2) fn begin(&mut self, out: &mut Vec<u8>) {
        if let Some((smallest, size)) = self.update.take() {
            write_updates(out, smallest, size);
        }
    }

    /// Appends `:status`.
    #[inline]
    pub(in crate::h2) fn status(&mut self, out: &mut Vec<u8>, status: u16) {
        let index = match status {
            200 => STATUS,
            204 => STATUS + 1,
            206 => STATUS + 2,
            304 => STATUS + 3,
            400 => STATUS + 4,
            404 => STATUS + 5,
            500 => STATUS + 6,
            _ => {
                let digits = [status / 100, status / 10 % 10, status % 10];
                let digits = digits.map(|digit| b'0' + digit as u8 % 10);
                return self.incremental(out, STATUS, b":status", &digits);
            }
        };
        out.push(0x80 | index as u8);
    }

    /// Appends `:method`.
    pub(in crate::h2) fn method(&mut self, out: &mut Vec<u8>, method: &[u8]) {
        match method {
            b"GET" => out.push(0x80 | METHOD as u8),
            b"POST" => out.push(0x80 | (METHOD + 1) as u8),
            _ => self.incremental(out, METHOD, b":method", method),
        }
    }

    /// Appends `:scheme`.
    pub(in crate::h2) fn scheme(&mut self, out: &mut Vec<u8>, is_https: bool) {
        out.push(0x80 | if is_https { SCHEME_HTTPS } else { SCHEME_HTTP } as u8);
    }

    /// Appends `:authority`.
    pub(in crate::h2) fn authority(&mut self, out: &mut Vec<u8>, authority: &[u8]) {
        self.incremental(out, AUTHORITY, b":authority", authority);
    }

    /// Appends `:path`.
    pub(in crate::h2) fn path(&mut self, out: &mut Vec<u8>, path: &[u8]) {
        match path {
            b"/" => out.push(0x80 | PATH as u8),
            _ => literal(out, 0x00, 4, PATH, b"", path),
        }
    }

    /// Appends `:protocol`.
    pub(in crate::h2) fn protocol(&mut self, out: &mut Vec<u8>, protocol: &[u8]) {
        self.incremental(out, 0, b":protocol", protocol);
    }

    /// Appends a field with a valid name, which is converted to lowercase, and a valid value.
    #[inline]
    pub(in crate::h2) fn field(&mut self, out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
        if let Some(index) = find_name(name) {
            let indexing = INDEXING[index - 1];
            return match indexing {
                Indexing::Incremental if value.len() <= MAX_VALUE_BYTES => {
                    self.incremental(out, index, STATIC_TABLE[index - 1].name(), value);
                }
                Indexing::Never => literal(out, 0x10, 4, index, b"", value),
                _ => literal(out, 0x00, 4, index, b"", value),
            };
        }
        let mut buffer = [0; MAX_NAME_BYTES];
        let Some(lowercase) = buffer.get_mut(..name.len()) else {
            return literal(out, 0x00, 4, 0, &name.to_ascii_lowercase(), value);
        };
        lowercase.copy_from_slice(name);
        lowercase.make_ascii_lowercase();
        if value.len() <= MAX_VALUE_BYTES {
            self.incremental(out, 0, lowercase, value);
        } else {
            literal(out, 0x00, 4, 0, lowercase, value);
        }
    }

    /// Appends a field as an index of the dynamic table if possible, else as a literal that enters the
    /// table.
    #[inline]
    fn incremental(&mut self, out: &mut Vec<u8>, name_index: usize, name: &[u8], value: &[u8]) {
        let slot = hash(name_index, name, value);
        // Wrong positions are harmless, because the entry is compared.
        let position = usize::from(self.inserted.wrapping_sub(self.index[slot]));
        if let Some((line, name_len, _)) = self.table.get(position.wrapping_sub(1))
            && line.get(name_len + 2..line.len() - 2) == Some(value)
            && line.get(..name_len) == Some(name)
        {
            return integer::encode(out, 0x80, 7, STATIC_TABLE.len() + position);
        }
        self.insert(out, slot, name_index, name, value);
    }

    #[inline(never)]
    fn insert(
        &mut self,
        out: &mut Vec<u8>,
        slot: usize,
        name_index: usize,
        name: &[u8],
        value: &[u8],
    ) {
        literal(out, 0x40, 6, name_index, name, value);
        self.table.insert_field(name, value);
        if self.table.len() > 0 {
            self.index[slot] = self.inserted;
            self.inserted = self.inserted.wrapping_add(1);
        }
    }
}

/// Appends the updates of the table size.
#[cold]
fn write_updates(out: &mut Vec<u8>, smallest: usize, size: usize) {
    if smallest < size {
        integer::encode(out, 0x20, 5, smallest);
    }
    integer::encode(out, 0x20, 5, size);
}

/// Appends a literal field whose first byte has these flags and a name index of `bits` bits, or the name. A
/// field that enters the table is Huffman-coded if that makes it shorter.
#[inline(never)]
fn literal(out: &mut Vec<u8>, flags: u8, bits: u32, name_index: usize, name: &[u8], value: &[u8]) {
    let is_coded = bits == 6;
    integer::encode(out, flags, bits, name_index);
    if name_index == 0 {
        string(out, name, is_coded);
    }
    string(out, value, is_coded);
}

/// Appends a string.
#[inline(always)]
fn string(out: &mut Vec<u8>, bytes: &[u8], is_coded: bool) {
    if is_coded {
        let len = huffman::encoded_len(bytes);
        if len < bytes.len() {
            integer::encode(out, 0x80, 7, len);
            return huffman::encode(bytes, out);
        }
    }
    integer::encode(out, 0, 7, bytes.len());
    out.extend_from_slice(bytes);
}

/// Returns the slot of a field.
#[inline(always)]
fn hash(name_index: usize, name: &[u8], value: &[u8]) -> usize {
    let mut state = name_index as u64;
    if name_index == 0 {
        state = hash_bytes(state, name);
    }
    (hash_bytes(state, value) >> 48) as usize % SLOTS
}

#[inline(always)]
fn hash_bytes(mut state: u64, bytes: &[u8]) -> u64 {
    let mut add = |word: u64| {
        state = (state.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    };
    add(bytes.len() as u64);
    let mut rest = bytes;
    while let Some((chunk, after)) = rest.split_first_chunk() {
        add(u64::from_le_bytes(*chunk));
        rest = after;
    }
    match bytes.last_chunk() {
        Some(last) => add(u64::from_le_bytes(*last)),
        None => rest.iter().for_each(|&byte| add(byte.into())),
    }
    state
}

/// The treatment of the fields of the static table.
static INDEXING: [Indexing; 61] = {
    let mut indexing = [Indexing::Incremental; 61];
    // Fields that usually differ between messages.
    let none = [21, 25, 28, 29, 30, 34, 36, 38, 39, 40, 41, 42, 43, 44, 46, 47, 50, 51, 53];
    let mut at = 0;
    while at < none.len() {
        indexing[none[at] - 1] = Indexing::None;
        at += 1;
    }
    // Authorization, Cookie, Proxy-Authorization, Set-Cookie.
    let never = [23, 32, 49, 55];
    let mut at = 0;
    while at < never.len() {
        indexing[never[at] - 1] = Indexing::Never;
        at += 1;
    }
    indexing
};

// The positions of entries are stored as 16-bit numbers.
const _: () = assert!(MAX_TABLE_BYTES / super::ENTRY_OVERHEAD < u16::MAX as usize / 2);
