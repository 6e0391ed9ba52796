//! Requests as fields and content, and heads of responses.

use crate::response::Head;

/// A list of fields.
pub(super) type Fields = Vec<(String, String)>;

/// A request.
#[derive(Debug, Default)]
pub(super) struct Message {
    pub(super) fields: Fields,
    pub(super) content: Vec<u8>,
    pub(super) trailers: Fields,
}

impl Message {
    /// Translates a valid request in the form of HTTP/1.1.
    pub(super) fn of_request(bytes: &[u8]) -> Message {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let (head, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 4));
        let head = String::from_utf8_lossy(head);
        let mut lines = head.split("\r\n").take_while(|line| !line.is_empty());
        let mut words = lines.next().unwrap_or_default().split(' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (scheme, mut path) = ("http", target);
        let (mut authority, mut is_chunked) = (None, false);
        if let Some(rest) = target.strip_prefix("http://") {
            let (host, _) = rest.split_once('/').unwrap_or((rest, ""));
            (authority, path) = (Some(host.to_owned()), &rest[host.len()..]);
        }
        let mut fields = Vec::new();
        for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
            match &*name.to_ascii_lowercase() {
                "host" => drop(authority.get_or_insert_with(|| value.to_owned())),
                "transfer-encoding" => is_chunked = true,
                "connection" => {}
                name => fields.push((name.to_owned(), value.to_owned())),
            }
        }
        let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let mut all = vec![field(":method", method)];
        if method != "CONNECT" {
            all.extend([field(":scheme", scheme), field(":path", path)]);
        }
        all.extend(authority.map(|host| (":authority".to_owned(), host)));
        all.append(&mut fields);
        let (content, trailers) =
            if is_chunked { dechunk(rest) } else { (rest.to_vec(), Vec::new()) };
        Message { fields: all, content, trailers }
    }

    /// Returns the value of a field.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| &**value)
    }
}

/// Returns the content and the trailers of a valid chunked body.
fn dechunk(mut rest: &[u8]) -> (Vec<u8>, Fields) {
    let mut content = Vec::new();
    while let Some(at) = rest.windows(2).position(|two| two == b"\r\n") {
        let size = std::str::from_utf8(&rest[..at]).ok();
        let size = size.and_then(|size| usize::from_str_radix(size, 16).ok()).unwrap_or(0);
        rest = &rest[at + 2..];
        if size == 0 {
            break;
        }
        content.extend_from_slice(rest.get(..size).unwrap_or_default());
        rest = rest.get(size + 2..).unwrap_or_default();
    }
    let text = String::from_utf8_lossy(rest);
    let lines = text.split("\r\n").filter_map(|line| line.split_once(": "));
    let trailers = lines.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
    (content, trailers.collect())
}

/// Fields that HTTP/2 does not have.
const CONNECTION_FIELDS: [&str; 5] =
    ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];

/// Checks the fields of a response, and returns its head.
///
/// # Errors
/// The fields are malformed.
pub(super) fn response_head(mut fields: Fields) -> Result<Head, String> {
    let malformed = fields.iter().skip(1).find(|(name, _)| {
        name.is_empty()
            || name.starts_with(':')
            || name.bytes().any(|byte| byte.is_ascii_uppercase())
            || CONNECTION_FIELDS.contains(&&**name)
    });
    if let Some((name, value)) = malformed {
        return Err(format!("a response with the field '{name}: {value}'"));
    }
    let status = match fields.first() {
        Some((name, value)) if name == ":status" && value.len() == 3 => value.parse().ok(),
        _ => None,
    };
    let status = status.ok_or_else(|| format!("a response without a status: {fields:?}"))?;
    if status == 101 {
        return Err("status 101".to_owned());
    }
    fields.remove(0);
    Ok(Head { status, fields })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn translates_requests() {
        let bytes = b"PUT http://a:1/b HTTP/1.1\r\nHost: c\r\nConnection: close\r\nX-Y: z\r\n\
            Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\nX-T: v\r\n\r\n";
        let message = Message::of_request(bytes);
        assert_eq!(message.content, b"abcd");
        assert_eq!(message.trailers, [("x-t".to_owned(), "v".to_owned())]);
        let names: Vec<_> = message.fields.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, [":method", ":scheme", ":path", ":authority", "x-y"]);
        assert_eq!(message.field(":path"), Some("/b"));
        assert_eq!(message.field(":authority"), Some("a:1"));
    }

    #[test]
    fn rejects_malformed_heads() {
        let head = |fields: &[(&str, &str)]| {
            let owned = fields.iter().map(|(name, value)| (name.to_string(), value.to_string()));
            response_head(owned.collect())
        };
        assert_eq!(head(&[(":status", "200"), ("a", "b")]).unwrap().status, 200);
        for malformed in [
            &[("a", "b")][..],
            &[(":status", "20")],
            &[(":status", "101")],
            &[(":status", "200"), ("Upper", "b")],
            &[(":status", "200"), (":status", "200")],
            &[(":status", "200"), ("connection", "close")],
        ] {
            assert!(head(malformed).is_err(), "{malformed:?}");
        }
    }
}
