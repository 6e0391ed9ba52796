//! The stamp in a message: the time at which it was sent, and a tag of the generator that sent it.

use hearken::timer::Time;

/// Size of a stamp in bytes.
pub(super) const STAMP_SIZE: usize = 32;
const HALF: usize = STAMP_SIZE / 2;

/// The tag of a generator. Times of other generators are not comparable, because they may run on
/// other machines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tag([u8; HALF]);

impl Tag {
    pub(super) fn new(number: u64) -> Tag {
        let mut tag = [0; HALF];
        tag.copy_from_slice(format!("{number:016x}").as_bytes());
        Tag(tag)
    }

    /// Returns the stamp for a message sent at `time`: hexadecimal digits.
    pub(super) fn stamp(self, time: Time) -> String {
        let tag = String::from_utf8_lossy(&self.0);
        format!("{tag}{:016x}", time.as_nanos())
    }

    /// Returns the time of the stamp in `message`. A server may have put other text around the
    /// stamp.
    pub(super) fn time_in(self, message: &[u8]) -> Option<Time> {
        let at = message.windows(STAMP_SIZE).position(|window| window.starts_with(&self.0))?;
        let digits = str::from_utf8(message.get(at + HALF..at + STAMP_SIZE)?).ok()?;
        u64::from_str_radix(digits, 16).ok().map(Time::from_nanos)
    }
}

#[cfg(test)]
mod tests {
    use hearken::timer::Time;

    use super::{STAMP_SIZE, Tag};

    #[test]
    fn finds_own_stamps_in_messages() {
        let (tag, other) = (Tag::new(7), Tag::new(8));
        let time = Time::from_nanos(123_456_789);
        let stamp = tag.stamp(time);
        assert_eq!(stamp.len(), STAMP_SIZE);
        for message in [stamp.clone(), format!("{{\"text\":\"{stamp}....\"}}")] {
            assert_eq!(tag.time_in(message.as_bytes()), Some(time));
            assert_eq!(other.time_in(message.as_bytes()), None);
        }
        assert_eq!(tag.time_in(&stamp.as_bytes()[..STAMP_SIZE - 1]), None);
        assert_eq!(tag.time_in(b""), None);
    }
}
