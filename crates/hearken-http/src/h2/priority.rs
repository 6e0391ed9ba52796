//! Priorities, RFC 9218.

use crate::class::trim;

/// The priority of a response.
///
/// ```
/// use hearken_http::h2::Priority;
///
/// let priority = Priority::parse(b"u=1, i").unwrap();
/// assert_eq!((priority.urgency, priority.incremental), (1, true));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Priority {
    /// Urgency from 0, the highest, to 7. Responses of lower urgency are sent first.
    pub urgency: u8,
    /// Whether responses of the same urgency share the connection instead of being sent one after the
    /// other.
    pub incremental: bool,
}

impl Priority {
    /// Parses the value of a Priority field or of a PRIORITY_UPDATE frame. Ignores unknown and invalid
    /// parameters. Returns `None` if no parameter is known.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let mut priority = Self { incremental: false, ..Self::default() };
        let mut is_known = false;
        for member in value.split(|&byte| byte == b',') {
            let member = member.split(|&byte| byte == b';').next().unwrap_or_default();
            match trim(member) {
                [b'u', b'=', urgency @ b'0'..=b'7'] => priority.urgency = urgency - b'0',
                b"i" | b"i=?1" => priority.incremental = true,
                b"i=?0" => priority.incremental = false,
                _ => continue,
            }
            is_known = true;
        }
        is_known.then_some(priority)
    }
}

/// The priority of a response to a client that sent none.
///
/// The default is incremental, unlike that of RFC 9218 section 4: clients without priorities expect that a
/// long response does not delay others.
impl Default for Priority {
    fn default() -> Self {
        Self { urgency: 3, incremental: true }
    }
}
