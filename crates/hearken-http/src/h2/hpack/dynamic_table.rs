//! The dynamic table of a decoder or encoder.

use std::collections::VecDeque;

use super::{ENTRY_OVERHEAD, FieldClass};

/// Maximum size of a table in bytes for any setting, so that the length of a line fits into 16 bits.
pub(super) const MAX_TABLE_BYTES: usize = 60_000;
/// Minimum growth of the memory for lines in bytes: small, because idle connections keep their tables.
const GROWTH_BYTES: usize = 256;
/// Bytes of a line other than name and value.
const LINE_OVERHEAD: usize = ": \r\n".len();

/// A dynamic table. Its memory grows with its entries, up to the maximum size.
#[derive(Debug)]
pub(super) struct DynamicTable {
    /// Entries, of which the last is the newest.
    entries: VecDeque<Entry>,
    /// Lines of the entries, after those of removed entries.
    lines: Vec<u8>,
    /// Position of the first byte of `lines`, modulo 2^32.
    base: u32,
    /// Size of the table as RFC 7541 section 4.1 defines it.
    size: usize,
    max_size: usize,
}

/// An entry, whose line is at this position.
#[derive(Debug, Clone, Copy)]
struct Entry {
    at: u32,
    len: u16,
    name_len: u16,
    class: FieldClass,
}

impl DynamicTable {
    pub(super) fn new(max_size: usize) -> Self {
        Self { entries: VecDeque::new(), lines: Vec::new(), base: 0, size: 0, max_size }
    }

    /// Returns the line, the length of the name and the class of the entry with this index. The newest
    /// entry has index 0.
    #[inline(always)]
    pub(super) fn get(&self, index: usize) -> Option<(&[u8], usize, FieldClass)> {
        let position = self.entries.len().checked_sub(index)?.checked_sub(1)?;
        let entry = self.entries.get(position)?;
        let start = entry.at.wrapping_sub(self.base) as usize;
        let line = self.lines.get(start..start + usize::from(entry.len))?;
        Some((line, entry.name_len.into(), entry.class))
    }

    /// Sets the maximum size and removes entries accordingly.
    pub(super) fn set_max_size(&mut self, max_size: usize) {
        self.max_size = max_size;
        self.evict(0);
    }

    /// Returns the number of entries.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the maximum size.
    pub(super) fn max_size(&self) -> usize {
        self.max_size
    }

    /// Inserts the line of a field. A field larger than the table empties the table.
    #[inline]
    pub(super) fn insert(&mut self, line: &[u8], name_len: usize, class: FieldClass) {
        if self.add_entry(line.len(), name_len, class) {
            self.lines.extend_from_slice(line);
        }
    }

    /// Inserts a field like [`insert`](Self::insert).
    pub(super) fn insert_field(&mut self, name: &[u8], value: &[u8]) {
        let len = name.len() + value.len() + LINE_OVERHEAD;
        if self.add_entry(len, name.len(), FieldClass::PLAIN) {
            for part in [name, b": ", value, b"\r\n"] {
                self.lines.extend_from_slice(part);
            }
        }
    }

    /// Adds an entry for a line of this length, which the caller appends. Returns false if it does not fit.
    #[inline(always)]
    fn add_entry(&mut self, len: usize, name_len: usize, class: FieldClass) -> bool {
        let size = len - LINE_OVERHEAD + ENTRY_OVERHEAD;
        if self.size + size > self.max_size {
            self.evict(size);
        }
        let fits = size <= self.max_size;
        if fits {
            let at = self.base.wrapping_add(self.lines.len() as u32);
            let (len, name_len) = (len as u16, name_len as u16);
            self.entries.push_back(Entry { at, len, name_len, class });
            self.size += size;
            if self.lines.capacity() - self.lines.len() < len.into() {
                self.lines.reserve_exact(usize::from(len).next_multiple_of(GROWTH_BYTES));
            }
        }
        fits
    }

    /// Removes the oldest entries until `size` more bytes fit.
    #[inline(never)]
    fn evict(&mut self, size: usize) {
        while self.size + size > self.max_size {
            let Some(entry) = self.entries.pop_front() else { break };
            self.size -= usize::from(entry.len) - LINE_OVERHEAD + ENTRY_OVERHEAD;
        }
        let first = match self.entries.front() {
            Some(entry) => entry.at.wrapping_sub(self.base) as usize,
            None => self.lines.len(),
        };
        // Moving the lines only when half of them are removed makes the cost per entry constant.
        if first >= self.lines.len() / 2 {
            self.lines.drain(..first);
            self.base = self.base.wrapping_add(first as u32);
        }
        if self.max_size == 0 {
            (self.entries, self.lines) = (VecDeque::new(), Vec::new());
        }
    }
}
