//! Decoding of field blocks.

use super::dynamic_table::{DynamicTable, MAX_TABLE_BYTES};
use super::static_table::STATIC_TABLE;
use super::{DEFAULT_TABLE_BYTES, FieldClass, HpackError, huffman, integer};
use crate::h2::head_buffer::HeadBuffer;

const NO_ENTRY: HpackError = HpackError("field index without an entry");

/// A decoder of field blocks with its dynamic table.
#[derive(Debug)]
pub(in crate::h2) struct Decoder {
    table: DynamicTable,
    /// Maximum size of the table that the peer may select.
    limit: usize,
    /// Whether the next block must reduce the size of the table.
    must_shrink: bool,
}

impl Decoder {
    pub(in crate::h2) fn new() -> Self {
        Self {
            table: DynamicTable::new(DEFAULT_TABLE_BYTES),
            limit: DEFAULT_TABLE_BYTES,
            must_shrink: false,
        }
    }

    /// Sets the maximum size of the table after the peer acknowledged it.
    pub(in crate::h2) fn set_limit(&mut self, bytes: usize) {
        let limit = bytes.min(MAX_TABLE_BYTES);
        self.must_shrink |= limit < self.limit;
        self.limit = limit;
    }

    /// Decodes a complete block and adds its fields to `head`.
    ///
    /// The work is linear in the length of the block, because `head` stops copying at its limits.
    #[inline]
    pub(in crate::h2) fn decode(
        &mut self,
        block: &[u8],
        head: &mut HeadBuffer,
    ) -> Result<(), HpackError> {
        let mut rest = block;
        if self.must_shrink || matches!(rest, [0x20..0x40, ..]) {
            rest = self.update_size(rest)?;
        }
        while let [first, after @ ..] = rest {
            rest = match first {
                0x80.. => {
                    let (index, after) = integer::decode(*first, 7, after)?;
                    let (line, name_len, class) = self.entry(index)?;
                    head.add_line(line, name_len, class);
                    after
                }
                0x20..0x40 => {
                    return Err(HpackError("table size update after the start of a field block"));
                }
                0x40..0x80 => self.literal(*first, 6, after, head)?,
                0x00..0x20 => self.literal(*first, 4, after, head)?,
            };
        }
        Ok(())
    }

    /// Decodes the size updates at the start of a block.
    #[cold]
    #[inline(never)]
    fn update_size<'b>(&mut self, mut rest: &'b [u8]) -> Result<&'b [u8], HpackError> {
        // RFC 7541 section 4.2: the smallest size since the last block, and the final one.
        for _ in 0..2 {
            let [first @ 0x20..0x40, after @ ..] = rest else { break };
            let (size, after) = integer::decode(*first, 5, after)?;
            if size > self.limit {
                return Err(HpackError("table size exceeds the announced maximum"));
            }
            self.table.set_max_size(size);
            self.must_shrink = false;
            rest = after;
        }
        match self.must_shrink {
            true => Err(HpackError("missing table size update after a reduction")),
            false => Ok(rest),
        }
    }

    /// Returns the line, the length of the name and the class of an entry.
    #[inline(always)]
    fn entry(&self, index: usize) -> Result<(&[u8], usize, FieldClass), HpackError> {
        match STATIC_TABLE.get(index.wrapping_sub(1)) {
            Some(entry) => Ok((entry.line, entry.name_len, entry.class)),
            None => index
                .checked_sub(STATIC_TABLE.len() + 1)
                .and_then(|index| self.table.get(index))
                .ok_or(NO_ENTRY),
        }
    }

    /// Decodes a literal field whose first byte has a name index of `bits` bits. Returns the bytes after
    /// it.
    #[inline]
    fn literal<'b>(
        &mut self,
        first: u8,
        bits: u32,
        rest: &'b [u8],
        head: &mut HeadBuffer,
    ) -> Result<&'b [u8], HpackError> {
        let (index, mut rest) = integer::decode(first, bits, rest)?;
        let lines = head.lines();
        let start = lines.len();
        let (name_len, class) = if index == 0 {
            rest = string(rest, lines)?;
            let line = lines.get(start..).unwrap_or_default();
            let name_len = line.len();
            let class = FieldClass::of_name(line, name_len);
            lines.extend_from_slice(b": ");
            (name_len, class)
        } else {
            let (line, name_len, class) = self.entry(index)?;
            lines.extend_from_slice(line.get(..name_len + 2).unwrap_or_default());
            (name_len, class)
        };
        rest = string(rest, lines)?;
        let class = class.with_value(lines.get(start + name_len + 2..).unwrap_or_default());
        lines.extend_from_slice(b"\r\n");
        if bits == 6 {
            self.table.insert(lines.get(start..).unwrap_or_default(), name_len, class);
        }
        head.finish_line(start, name_len, class);
        Ok(rest)
    }
}

/// Decodes the string that `bytes` starts with and appends it to `out`. Returns the bytes after it.
#[inline]
fn string<'b>(bytes: &'b [u8], out: &mut Vec<u8>) -> Result<&'b [u8], HpackError> {
    const INCOMPLETE: HpackError = HpackError("incomplete string in a field block");
    let (first, rest) = bytes.split_first().ok_or(INCOMPLETE)?;
    let (len, rest) = integer::decode(*first, 7, rest)?;
    let (string, rest) = rest.split_at_checked(len).ok_or(INCOMPLETE)?;
    if first & 0x80 == 0 {
        out.extend_from_slice(string);
    } else if huffman::decode(string, out).is_err() {
        return Err(HpackError("invalid Huffman code in a field block"));
    }
    Ok(rest)
}
