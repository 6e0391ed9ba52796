//! Limits on message heads.

/// Limits on a message head and on the trailer section of a chunked body.
///
/// ```
/// use hearken_http::{Limits, RequestParser};
///
/// let limits = Limits { max_target_bytes: 4, ..Limits::default() };
/// let reject = RequestParser::new().parse(b"GET /long", &limits).unwrap_err();
/// assert_eq!(reject.status, 414);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum size of a head in bytes, including its blank line [default: 16 KiB]. Larger heads result in
    /// 431.
    pub max_head_bytes: usize,
    /// Maximum number of field lines of a head [default: 100]. More result in 431.
    pub max_fields: usize,
    /// Maximum length of a request-target in bytes [default: 8 KiB]. Longer targets result in 414.
    pub max_target_bytes: usize,
}

impl Limits {
    /// Returns the bytes of `bytes` that a head may occupy.
    #[inline(always)]
    pub(crate) fn window<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        bytes.get(..self.max_head_bytes.min(MAX_BYTES)).unwrap_or(bytes)
    }
}

/// Maximum size of a head in bytes for any setting, so that positions fit into 32 bits.
const MAX_BYTES: usize = u32::MAX as usize;

impl Default for Limits {
    fn default() -> Self {
        Self { max_head_bytes: 16 * 1024, max_fields: 100, max_target_bytes: 8 * 1024 }
    }
}
