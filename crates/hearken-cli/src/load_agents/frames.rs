//! Frames: results of several processes in one stream.
//!
//! srun forwards the output of a task in pieces of at most 1,024 bytes, and mpirun in pieces of 4,096, mixed with the
//! output of other tasks. So a result is split into lines of 512 bytes that start with the rank. No piece ends within
//! a line if each line is written to a pipe in a call of its own.

use std::collections::BTreeMap;

/// Length of a line in bytes, including the newline.
pub(super) const LENGTH: usize = 512;

/// The first bytes of a line.
const MARK: &[u8] = b"@hearken ";

/// Length of the header: the mark, and rank, index and number of lines in hexadecimal.
const HEAD: usize = MARK.len() + 3 * 9;

const PAYLOAD: usize = LENGTH - HEAD - 1;

/// Maximum number of lines of a result: 64 MiB.
const MAX_LINES: usize = (64 << 20) / PAYLOAD;

/// Splits a result, which must not contain newlines, into lines.
pub(super) fn frames(rank: u32, result: &[u8]) -> Result<Vec<u8>, String> {
    let count = result.len().div_ceil(PAYLOAD);
    if count > MAX_LINES || result.contains(&b'\n') {
        return Err(format!("the result is too large for frames: {} bytes", result.len()));
    }
    let mut lines = Vec::with_capacity(count * LENGTH);
    for (index, piece) in result.chunks(PAYLOAD).enumerate() {
        lines.extend(MARK);
        lines.extend(format!("{rank:08x} {index:08x} {count:08x} ").bytes());
        lines.extend(piece);
        lines.resize((index + 1) * LENGTH - 1, b' ');
        lines.push(b'\n');
    }
    Ok(lines)
}

/// Results that are being reassembled.
#[derive(Default)]
pub(super) struct Results {
    /// The number of received lines and their content, by rank.
    partial: BTreeMap<u32, (usize, Vec<u8>)>,
    complete: BTreeMap<u32, Vec<u8>>,
}

impl Results {
    /// Adds a line. Returns the part of the line that does not belong to a result.
    ///
    /// # Errors
    /// A frame of an unexpected rank, or out of order.
    pub(super) fn add_line<'a>(&mut self, line: &'a [u8], size: u32) -> Result<&'a [u8], String> {
        // Other output may precede the frame without a newline.
        let (before, frame) = line.split_at(line.len().saturating_sub(LENGTH - 1));
        let Some((rank, index, count, piece)) = parse(frame) else { return Ok(line) };
        let invalid = |reason: &str| Err(format!("invalid result of rank {rank}: {reason}"));
        if rank >= size || self.complete.contains_key(&rank) {
            return invalid("duplicate or unexpected rank");
        }
        let (received, text) = self.partial.entry(rank).or_default();
        if index != *received || index >= count || count > MAX_LINES {
            return invalid("a line is missing");
        }
        *received += 1;
        text.extend(piece);
        if *received == count {
            let (_, text) = self.partial.remove(&rank).unwrap_or_default();
            self.complete.insert(rank, text);
        }
        Ok(before)
    }

    /// Returns the complete results by rank.
    pub(super) fn complete(self) -> BTreeMap<u32, Vec<u8>> {
        self.complete
    }
}

fn parse(line: &[u8]) -> Option<(u32, usize, usize, &[u8])> {
    let fields = line.strip_prefix(MARK)?;
    if line.len() != LENGTH - 1 {
        return None;
    }
    let field = |at: usize| {
        let text = std::str::from_utf8(fields.get(at * 9..at * 9 + 8)?).ok()?;
        u32::from_str_radix(text, 16).ok()
    };
    Some((field(0)?, field(1)? as usize, field(2)? as usize, &line[HEAD..]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Results, frames};

    /// Mixes outputs as a launcher does: in pieces of up to 1,024 bytes.
    fn mixed(mut all: Vec<Vec<u8>>, order: &[usize]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut turns = order.iter().copied().chain(0..);
        while all.iter().any(|left| !left.is_empty()) {
            let at = turns.next().unwrap() % all.len();
            let length = all[at].len().min(1024);
            out.extend(all[at].drain(..length));
        }
        out
    }

    proptest! {
        #[test]
        fn results_are_reassembled(
            results in prop::collection::vec("[ -~]{1,4000}", 1..5),
            order in prop::collection::vec(0..5usize, 0..50),
        ) {
            let all = results.iter().zip(0..).map(|(text, rank)| frames(rank, text.as_bytes()).unwrap());
            let stream = mixed(all.collect(), &order);
            let mut found = Results::default();
            let size = results.len() as u32;
            for line in stream.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                prop_assert_eq!(found.add_line(line, size), Ok(&b""[..]));
            }
            for (rank, bytes) in found.complete() {
                let text = std::str::from_utf8(&bytes).unwrap();
                prop_assert_eq!(text.trim_end(), results[rank as usize].trim_end());
            }
        }

        #[test]
        fn other_output_is_returned(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            prop_assert_eq!(Results::default().add_line(&bytes, 3), Ok(&bytes[..]));
        }
    }

    #[test]
    fn missing_lines_are_detected() {
        let lines = frames(1, &[b'x'; 2000]).unwrap();
        let lines: Vec<_> = lines.split(|byte| *byte == b'\n').collect();
        let mut found = Results::default();
        assert_eq!(found.add_line(&[b"note: ", lines[0]].concat(), 2), Ok(&b"note: "[..]));
        assert!(found.add_line(lines[2], 2).unwrap_err().contains("a line is missing"));
        assert!(found.add_line(lines[0], 1).unwrap_err().contains("unexpected rank"));
        assert!(found.complete().is_empty());
    }
}
