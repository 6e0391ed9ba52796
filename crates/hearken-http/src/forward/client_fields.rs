//! Fields about the client of a forwarded request: `X-Forwarded-*` and `Forwarded` (RFC 7239).

use std::net::IpAddr;

use super::request::FoundFields;
use super::{HeaderPolicy, Rules, address};
use crate::request::Request;
use crate::scan;

/// The client and the host that it requested.
pub(super) struct ClientInfo<'a> {
    pub(super) client: Option<IpAddr>,
    /// Whether the client uses TLS.
    pub(super) is_secure: bool,
    /// Host that the client requested, or empty.
    pub(super) host: &'a [u8],
}

impl ClientInfo<'_> {
    /// Appends the fields that `rules` require.
    #[inline(always)]
    pub(super) fn write(
        &self,
        rules: &Rules,
        out: &mut Vec<u8>,
        request: &Request<'_>,
        found: &FoundFields<'_>,
    ) {
        match rules.x_forwarded {
            HeaderPolicy::Append if found.has_x_forwarded() => {
                self.append_x_forwarded(out, request, found);
            }
            HeaderPolicy::Append | HeaderPolicy::Replace => self.set_x_forwarded(out),
            HeaderPolicy::Keep | HeaderPolicy::Remove => {}
        }
        if matches!(rules.forwarded, HeaderPolicy::Replace | HeaderPolicy::Append) {
            self.write_forwarded(out, request, found.forwarded);
        }
    }

    /// Appends new X-Forwarded fields.
    #[inline(always)]
    fn set_x_forwarded(&self, out: &mut Vec<u8>) {
        if let Some(client) = self.client {
            out.extend_from_slice(b"\r\nX-Forwarded-For: ");
            address::write(out, client);
        }
        if self.host.is_empty() {
            return self.write_proto(out);
        }
        let before_host: &[u8] = match self.is_secure {
            false => b"\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: ",
            true => b"\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: ",
        };
        out.extend_from_slice(before_host);
        out.extend_from_slice(self.host);
    }

    /// Appends X-Forwarded fields with the client added to the received ones.
    ///
    /// Joins all X-Forwarded-For values in one field, because many servers read only one. The other fields
    /// keep the values of the first proxy.
    #[cold]
    fn append_x_forwarded(
        &self,
        out: &mut Vec<u8>,
        request: &Request<'_>,
        found: &FoundFields<'_>,
    ) {
        let start = out.len();
        out.extend_from_slice(b"\r\nX-Forwarded-For: ");
        let mut list = List { out, is_empty: true };
        if found.x_forwarded_for {
            request.field_values("X-Forwarded-For").for_each(|value| list.add(value));
        }
        if let Some(client) = self.client {
            list.separate();
            address::write(list.out, client);
        }
        if list.is_empty {
            out.truncate(start);
        }
        if !found.x_forwarded_proto {
            self.write_proto(out);
        }
        if !found.x_forwarded_host && !self.host.is_empty() {
            out.extend_from_slice(b"\r\nX-Forwarded-Host: ");
            out.extend_from_slice(self.host);
        }
    }

    fn scheme(&self) -> &'static [u8] {
        if self.is_secure { b"https" } else { b"http" }
    }

    #[cold]
    fn write_proto(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\r\nX-Forwarded-Proto: ");
        out.extend_from_slice(self.scheme());
    }

    #[inline(never)]
    fn write_forwarded(&self, out: &mut Vec<u8>, request: &Request<'_>, was_present: bool) {
        out.extend_from_slice(b"\r\nForwarded: ");
        let mut list = List { out, is_empty: true };
        if was_present {
            // After an unterminated quoted string, the appended element would be part of that string.
            let values =
                request.field_values("Forwarded").filter(|value| has_balanced_quotes(value));
            values.for_each(|value| list.add(value));
        }
        list.separate();
        match self.client {
            Some(client) if address::has_colons(client) => {
                out.extend_from_slice(b"for=\"[");
                address::write(out, client);
                out.extend_from_slice(b"]\"");
            }
            Some(client) => {
                out.extend_from_slice(b"for=");
                address::write(out, client);
            }
            None => out.extend_from_slice(b"for=unknown"),
        }
        out.extend_from_slice(b";proto=");
        out.extend_from_slice(self.scheme());
        if !self.host.is_empty() {
            // A valid host contains no quotes and no backslashes.
            let quote: &[u8] =
                if scan::token_len(self.host) == self.host.len() { b"" } else { b"\"" };
            out.extend_from_slice(b";host=");
            out.extend_from_slice(quote);
            out.extend_from_slice(self.host);
            out.extend_from_slice(quote);
        }
    }
}

/// A writer of a comma-separated list.
struct List<'v> {
    out: &'v mut Vec<u8>,
    is_empty: bool,
}

impl List<'_> {
    fn separate(&mut self) {
        if !self.is_empty {
            self.out.extend_from_slice(b", ");
        }
        self.is_empty = false;
    }

    fn add(&mut self, value: &[u8]) {
        if !value.is_empty() {
            self.separate();
            self.out.extend_from_slice(value);
        }
    }
}

/// Returns whether all quoted strings in a value are terminated.
fn has_balanced_quotes(value: &[u8]) -> bool {
    let mut bytes = value.iter();
    let mut is_quoted = false;
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => is_quoted = !is_quoted,
            b'\\' if is_quoted => drop(bytes.next()),
            _ => {}
        }
    }
    !is_quoted
}
