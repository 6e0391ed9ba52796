//! Frames (RFC 9113 section 4).

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PUSH_PROMISE: u8 = 5;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;
pub(super) const PRIORITY_UPDATE: u8 = 16;

pub(super) const END_STREAM: u8 = 1;
pub(super) const ACK: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;
pub(super) const PADDED: u8 = 8;
pub(super) const WITH_PRIORITY: u8 = 0x20;

pub(super) const SETTINGS_HEADER_TABLE_SIZE: u16 = 1;
pub(super) const SETTINGS_ENABLE_PUSH: u16 = 2;
pub(super) const SETTINGS_MAX_CONCURRENT_STREAMS: u16 = 3;
pub(super) const SETTINGS_INITIAL_WINDOW_SIZE: u16 = 4;
pub(super) const SETTINGS_MAX_FRAME_SIZE: u16 = 5;

/// The first bytes of a client.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Initial size of all windows in bytes.
pub(super) const INITIAL_WINDOW: u32 = 65_535;
/// Maximum size of a window in bytes.
pub(super) const MAX_WINDOW: i64 = (1 << 31) - 1;
/// Initial maximum length of a payload in bytes.
pub(super) const INITIAL_MAX_PAYLOAD: u32 = 16_384;
/// Length of the header of a frame in bytes.
const HEADER: usize = 9;

/// Appends a frame.
pub(super) fn write(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Appends WINDOW_UPDATE.
pub(super) fn write_window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    write(out, WINDOW_UPDATE, 0, stream, &increment.to_be_bytes());
}

/// Appends RST_STREAM.
pub(super) fn write_reset(out: &mut Vec<u8>, stream: u32, code: u32) {
    write(out, RST_STREAM, 0, stream, &code.to_be_bytes());
}

/// Appends SETTINGS.
pub(super) fn write_settings(out: &mut Vec<u8>, settings: &[(u16, u32)]) {
    let mut payload = Vec::new();
    for (id, value) in settings {
        payload.extend_from_slice(&id.to_be_bytes());
        payload.extend_from_slice(&value.to_be_bytes());
    }
    write(out, SETTINGS, 0, 0, &payload);
}

/// Returns a payload with padding, and the flag for it.
pub(super) fn pad(payload: &[u8], padding: u8) -> (Vec<u8>, u8) {
    if padding == 0 {
        return (payload.to_vec(), 0);
    }
    let mut padded = vec![padding];
    padded.extend_from_slice(payload);
    padded.resize(padded.len() + usize::from(padding), 0);
    (padded, PADDED)
}

/// A received frame.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: Vec<u8>,
}

impl Frame {
    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Returns the payload without padding.
    pub(super) fn unpadded(&self) -> Result<&[u8], String> {
        if !self.has(PADDED) {
            return Ok(&self.payload);
        }
        let padding = self.payload.first().map(|length| usize::from(*length));
        let end = padding.and_then(|padding| self.payload.len().checked_sub(padding));
        let content = end.and_then(|end| self.payload.get(1..end));
        content.ok_or_else(|| "padding that is longer than the frame".to_owned())
    }

    /// Returns the number of 32 bits at a position of the payload.
    pub(super) fn number(&self, at: usize) -> Result<u32, String> {
        let bytes = self.payload.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map(u32::from_be_bytes).ok_or_else(|| format!("{self:?} is too short"))
    }
}

/// Divides received bytes into frames.
#[derive(Debug, Default)]
pub(super) struct FrameReader {
    pending: Vec<u8>,
    position: usize,
}

impl FrameReader {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.pending.drain(..self.position);
        self.position = 0;
        self.pending.extend_from_slice(bytes);
    }

    /// Returns whether a frame is incomplete.
    pub(super) fn is_within_frame(&self) -> bool {
        self.position < self.pending.len()
    }

    /// Returns the next frame if it is complete.
    ///
    /// # Errors
    /// The payload is longer than `max`.
    pub(super) fn next(&mut self, max: u32) -> Result<Option<Frame>, String> {
        let Some((header, rest)) = self.pending[self.position..].split_first_chunk::<HEADER>()
        else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
        if length > max {
            return Err(format!("a frame of {length} bytes, of at most {max}"));
        }
        let Some(payload) = rest.get(..length as usize) else { return Ok(None) };
        let stream = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
        let frame = Frame {
            kind: header[3],
            flags: header[4],
            stream: stream & 0x7fff_ffff,
            payload: payload.to_vec(),
        };
        self.position += HEADER + payload.len();
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_frames_in_pieces_of_any_size() {
        let mut stream = Vec::new();
        let (padded, flag) = pad(b"content", 3);
        write(&mut stream, DATA, flag | END_STREAM, 7, &padded);
        write_settings(&mut stream, &[(SETTINGS_MAX_FRAME_SIZE, 20_000)]);
        for size in 1..=stream.len() {
            let (mut reader, mut frames) = (FrameReader::default(), Vec::new());
            for piece in stream.chunks(size) {
                reader.push(piece);
                while let Some(frame) = reader.next(100).unwrap() {
                    frames.push(frame);
                }
            }
            assert!(!reader.is_within_frame());
            assert_eq!(frames[0].unpadded().unwrap(), b"content");
            assert_eq!((frames[0].kind, frames[0].stream), (DATA, 7));
            assert_eq!(frames[1].number(2).unwrap(), 20_000);
        }
    }

    #[test]
    fn rejects_long_frames_and_padding() {
        let mut stream = Vec::new();
        write(&mut stream, DATA, PADDED, 1, &[3, 0, 0]);
        let mut reader = FrameReader::default();
        reader.push(&stream);
        assert!(reader.next(2).is_err());
        assert!(reader.next(3).unwrap().unwrap().unpadded().is_err());
    }
}
