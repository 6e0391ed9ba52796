//! Passing messages on: what an intermediary writes of the heads and bodies that it reads
//! (RFC 9110 section 7.6, RFC 9112 section 6, RFC 7239).

/// What becomes of fields about the client that a request came with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Given {
    /// They are taken off, and ours are set: who sent them is not believed.
    Replace,
    /// What we know is added behind them.
    Append,
    /// They are passed on as they came, and none is added.
    Keep,
    /// They are taken off, and none is added.
    Remove,
}
