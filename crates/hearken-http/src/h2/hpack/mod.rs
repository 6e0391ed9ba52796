//! Field compression, RFC 7541.
//!
//! Table entries are stored as lines of an HTTP/1.1 head together with their class, so that an indexed
//! field costs one copy and no validation.

mod class;
mod decoder;
mod dynamic_table;
mod encoder;
mod huffman;
mod integer;
mod static_table;

pub(super) use class::FieldClass;
pub(super) use decoder::Decoder;
pub(super) use encoder::Encoder;

/// Size of the dynamic table in bytes until a peer announces another, RFC 9113 section 6.5.2.
pub(super) const DEFAULT_TABLE_BYTES: usize = 4096;
/// Size that each entry of a dynamic table has in addition to its name and value, RFC 7541 section 4.1.
const ENTRY_OVERHEAD: usize = 32;

/// A violation of RFC 7541, after which the connection cannot continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HpackError(pub(super) &'static str);
