//! The static table, RFC 7541 appendix A.

use super::FieldClass;
use crate::class::eq_name;

/// An entry of the static table.
#[derive(Debug)]
pub(super) struct StaticEntry {
    /// The field as a line of a head, with CRLF.
    pub(super) line: &'static [u8],
    pub(super) name_len: usize,
    pub(super) class: FieldClass,
}

impl StaticEntry {
    pub(super) fn name(&self) -> &'static [u8] {
        self.line.get(..self.name_len).unwrap_or_default()
    }
}

macro_rules! static_table {
    ($($class:ident $name:literal $value:literal)*) => {
        /// The entries, of which the first has index 1.
        pub(super) static STATIC_TABLE: [StaticEntry; 61] = [$(StaticEntry {
            line: concat!($name, ": ", $value, "\r\n").as_bytes(),
            name_len: $name.len(),
            class: FieldClass::$class,
        }),*];

        /// The names of the entries.
        const STATIC_NAMES: [&[u8]; 61] = [$($name.as_bytes()),*];
    };
}

static_table! {
    AUTHORITY ":authority" ""
    METHOD ":method" "GET"
    METHOD ":method" "POST"
    PATH ":path" "/"
    PATH ":path" "/index.html"
    SCHEME ":scheme" "http"
    SCHEME ":scheme" "https"
    STATUS ":status" "200"
    STATUS ":status" "204"
    STATUS ":status" "206"
    STATUS ":status" "304"
    STATUS ":status" "400"
    STATUS ":status" "404"
    STATUS ":status" "500"
    PLAIN "accept-charset" ""
    PLAIN "accept-encoding" "gzip, deflate"
    PLAIN "accept-language" ""
    PLAIN "accept-ranges" ""
    PLAIN "accept" ""
    PLAIN "access-control-allow-origin" ""
    PLAIN "age" ""
    PLAIN "allow" ""
    PLAIN "authorization" ""
    PLAIN "cache-control" ""
    PLAIN "content-disposition" ""
    PLAIN "content-encoding" ""
    PLAIN "content-language" ""
    CONTENT_LENGTH "content-length" ""
    PLAIN "content-location" ""
    PLAIN "content-range" ""
    PLAIN "content-type" ""
    COOKIE "cookie" ""
    PLAIN "date" ""
    PLAIN "etag" ""
    RELEVANT "expect" ""
    PLAIN "expires" ""
    PLAIN "from" ""
    HOST "host" ""
    RELEVANT "if-match" ""
    RELEVANT "if-modified-since" ""
    RELEVANT "if-none-match" ""
    RELEVANT "if-range" ""
    RELEVANT "if-unmodified-since" ""
    PLAIN "last-modified" ""
    PLAIN "link" ""
    PLAIN "location" ""
    RELEVANT "max-forwards" ""
    RELEVANT "proxy-authenticate" ""
    RELEVANT "proxy-authorization" ""
    RELEVANT "range" ""
    PLAIN "referer" ""
    PLAIN "refresh" ""
    PLAIN "retry-after" ""
    PLAIN "server" ""
    PLAIN "set-cookie" ""
    PLAIN "strict-transport-security" ""
    CONNECTION "transfer-encoding" ""
    PLAIN "user-agent" ""
    PLAIN "vary" ""
    RELEVANT "via" ""
    PLAIN "www-authenticate" ""
}

/// Returns the index of the first entry with this name, ignoring case. Names of pseudo-header fields are
/// not found.
#[inline]
pub(super) fn find_name(name: &[u8]) -> Option<usize> {
    let index = usize::from(NAME_INDEX[hash(name)?]);
    let entry = STATIC_TABLE.get(index.wrapping_sub(1))?;
    eq_name(name, entry.name()).then_some(index)
}

/// Size of the hash table of names. It and the factors in [`hash`] were searched for a table without
/// collisions.
const SLOTS: usize = 128;

#[inline(always)]
const fn hash(name: &[u8]) -> Option<usize> {
    let (Some(&first), Some(&last)) = (name.first(), name.last()) else {
        return None;
    };
    let middle = name[name.len() / 2];
    let letters = (first & 31) as usize * 57 + (last & 31) as usize + (middle & 31) as usize * 5;
    Some((name.len() * 6 + letters) % SLOTS)
}

/// The index of the entry with the name of this hash, or 0.
static NAME_INDEX: [u8; SLOTS] = {
    let mut table = [0; SLOTS];
    let mut index = STATIC_NAMES.len();
    while index > 0 {
        let name = STATIC_NAMES[index - 1];
        if name[0] != b':'
            && let Some(slot) = hash(name)
        {
            table[slot] = index as u8;
        }
        index -= 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_without_case() {
        for (index, entry) in STATIC_TABLE.iter().enumerate() {
            let name = entry.name();
            if !name.starts_with(b":") {
                let first = STATIC_TABLE.iter().position(|entry| entry.name() == name);
                assert_eq!(first, Some(index), "regular names occur once");
                assert_eq!(find_name(name), Some(index + 1));
                assert_eq!(find_name(&name.to_ascii_uppercase()), Some(index + 1));
            }
        }
        assert_eq!(find_name(b"x-other"), None);
        assert_eq!(find_name(b""), None);
    }

    #[test]
    fn classes_are_those_of_literal_fields() {
        for entry in &STATIC_TABLE {
            let value = &entry.line[entry.name_len + 2..entry.line.len() - 2];
            let class = FieldClass::of_name(entry.line, entry.name_len).with_value(value);
            assert_eq!(entry.class, class, "{}", entry.line.escape_ascii());
        }
    }
}
