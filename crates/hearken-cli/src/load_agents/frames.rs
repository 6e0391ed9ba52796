//! Results of many processes in one stream.
//!
//! srun passes on a task's output in pieces of at most 1,024 bytes, and mpirun in pieces of 4,096,
//! between which come those of other tasks. So a result is cut into lines of 512 bytes, each of which
//! says whose it is: no piece ends within one, if each is written in a call of its own to a pipe.

use std::collections::BTreeMap;

/// Of a line, with its end.
pub(super) const LENGTH: usize = 512;

/// What a line begins with.
const MARK: &[u8] = b"@hearken ";

/// Whose it is, which one it is, and of how many, in hexadecimal.
const HEAD: usize = MARK.len() + 3 * 9;

const PAYLOAD: usize = LENGTH - HEAD - 1;

/// Lines of one result: 64 MiB.
const MOST: usize = (64 << 20) / PAYLOAD;

/// The lines of a result: text without line ends.
pub(super) fn frames(rank: u32, result: &[u8]) -> Result<Vec<u8>, String> {
    let count = result.len().div_ceil(PAYLOAD);
    if count > MOST || result.contains(&b'\n') {
        return Err(format!("a result of {} bytes is too long to be handed over", result.len()));
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

/// Results that are put together again.
#[derive(Default)]
pub(super) struct Results {
    /// By rank: how many lines came, and what they said.
    parts: BTreeMap<u32, (usize, Vec<u8>)>,
    whole: BTreeMap<u32, Vec<u8>>,
}

impl Results {
    /// Takes a line, and gives back what of it is no part of a result.
    pub(super) fn line<'a>(&mut self, line: &'a [u8], size: u32) -> Result<&'a [u8], String> {
        // Others may have left a line without its end.
        let (before, frame) = line.split_at(line.len().saturating_sub(LENGTH - 1));
        let Some((rank, index, count, piece)) = parse(frame) else { return Ok(line) };
        let wrong = |what: &str| Err(format!("the result of rank {rank} {what}"));
        if rank >= size || self.whole.contains_key(&rank) {
            return wrong("came from two agents, or from none of these");
        }
        let (came, text) = self.parts.entry(rank).or_default();
        if index != *came || index >= count || count > MOST {
            return wrong("lacks a part");
        }
        *came += 1;
        text.extend(piece);
        if *came == count {
            let (_, text) = self.parts.remove(&rank).unwrap_or_default();
            self.whole.insert(rank, text);
        }
        Ok(before)
    }

    /// By rank, those that are whole.
    pub(super) fn whole(self) -> BTreeMap<u32, Vec<u8>> {
        self.whole
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

    /// As a launcher mixes them: pieces of 1,024 bytes, or what is left, of one after another.
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
        fn results_are_put_together_again(
            results in prop::collection::vec("[ -~]{1,4000}", 1..5),
            order in prop::collection::vec(0..5usize, 0..50),
        ) {
            let all = results.iter().zip(0..).map(|(text, rank)| frames(rank, text.as_bytes()).unwrap());
            let stream = mixed(all.collect(), &order);
            let mut found = Results::default();
            let size = results.len() as u32;
            for line in stream.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                prop_assert_eq!(found.line(line, size), Ok(&b""[..]));
            }
            for (rank, text) in found.whole() {
                let said = std::str::from_utf8(&text).unwrap();
                prop_assert_eq!(said.trim_end(), results[rank as usize].trim_end());
            }
        }

        #[test]
        fn what_is_no_part_is_left(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            prop_assert_eq!(Results::default().line(&bytes, 3), Ok(&bytes[..]));
        }
    }

    #[test]
    fn what_is_missing_is_seen() {
        let lines = frames(1, &[b'x'; 2000]).unwrap();
        let lines: Vec<_> = lines.split(|byte| *byte == b'\n').collect();
        let mut found = Results::default();
        assert_eq!(found.line(&[b"what: ", lines[0]].concat(), 2), Ok(&b"what: "[..]));
        assert!(found.line(lines[2], 2).unwrap_err().contains("rank 1 lacks"));
        assert!(found.line(lines[0], 1).unwrap_err().contains("rank 1 came from"));
        assert!(found.whole().is_empty());
    }
}
