//! Frames of HTTP/2 that a client sends.

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const PRIORITY_UPDATE: u8 = 16;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const PADDED: u8 = 8;

/// The field block of `GET /small` at `http://a`.
pub(crate) const GET_SMALL: &[u8] = b"\x82\x86\x01\x01a\x04\x06/small";
/// The field block of `GET /large` at `http://a`.
pub(crate) const GET_LARGE: &[u8] = b"\x82\x86\x01\x01a\x04\x06/large";
/// The field block of `POST /small` at `http://a`.
pub(crate) const POST: &[u8] = b"\x83\x86\x01\x01a\x04\x06/small";

/// Returns a frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Returns a request without a body.
pub(crate) fn request(stream: u32, block: &[u8]) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, block)
}

/// Returns the preface and a SETTINGS frame.
pub(crate) fn preface(settings: &[(u16, u32)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (id, value) in settings {
        payload.extend(id.to_be_bytes());
        payload.extend(value.to_be_bytes());
    }
    [hearken_http::h2::PREFACE.to_vec(), frame(SETTINGS, 0, 0, &payload)].concat()
}

/// Returns the error code of the last GOAWAY frame among these frames.
pub(crate) fn goaway_code(mut frames: &[u8]) -> Option<u32> {
    let mut code = None;
    while let Some((&[a, b, c, kind, _, _, _, _, _], rest)) = frames.split_first_chunk() {
        let (payload, rest) = rest.split_at_checked(u32::from_be_bytes([0, a, b, c]) as usize)?;
        if kind == GOAWAY {
            code = payload.get(4..8).map(|code| u32::from_be_bytes(code.try_into().unwrap()));
        }
        frames = rest;
    }
    code
}
