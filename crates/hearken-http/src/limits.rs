//! How much a peer may send before it is refused.

/// Bounds on a message head, and on the trailer section of a chunked body.
///
/// ```
/// use hearken_http::{Limits, RequestParser};
///
/// let limits = Limits { target_bytes: 4, ..Limits::default() };
/// let reject = RequestParser::new().parse(b"GET /long", &limits).unwrap_err();
/// assert_eq!(reject.status, 414);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of a head, its blank line included; more is a 431. 16 KiB by default.
    pub head_bytes: usize,
    /// Most field lines of a head; more is a 431. 100 by default.
    pub fields: usize,
    /// Most bytes of a request-target; more is a 414. 8 KiB by default.
    pub target_bytes: usize,
}

impl Limits {
    /// The bytes of `bytes` that a head may occupy.
    #[inline(always)]
    pub(crate) fn window<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        bytes.get(..self.head_bytes.min(MOST_BYTES)).unwrap_or(bytes)
    }
}

/// Most bytes of a head whatever is set, so that a place in it takes four.
const MOST_BYTES: usize = u32::MAX as usize;

impl Default for Limits {
    fn default() -> Self {
        Self { head_bytes: 16 * 1024, fields: 100, target_bytes: 8 * 1024 }
    }
}
