//! Replies as the load generator reads them.

use hearken_http::{Limits, Method, RequestParser};
use hearken_load::fuzzing::{HeadHandling, cookies, replies};

use crate::variation::pieces;

// Neither the pieces nor the cache of heads change what is recognised. The first byte selects the method.
#[test]
fn reply() {
    bolero::check!().for_each(|bytes: &[u8]| {
        let Some((&first, bytes)) = bytes.split_first() else { return };
        let method = [Method::Get, Method::Head][usize::from(first) % 2];
        // An error may be reported only at the end of the line or of the head.
        let ended = [bytes, b"\r\n\r\n"].concat();
        let whole = replies(&[&ended], method, HeadHandling::Parsed);
        assert_eq!(replies(&[&ended], method, HeadHandling::Cached), whole);
        for handling in [HeadHandling::Parsed, HeadHandling::Cached] {
            assert_eq!(replies(&pieces(&ended), method, handling), whole);
        }
    });
}

// Cookies from lines do not break a request, and it has at most one Cookie field.
#[test]
fn set_cookie() {
    bolero::check!().for_each(|bytes: &[u8]| {
        let request = b"GET /a/b?c HTTP/1.1\r\nHost: a\r\n\r\nbody";
        // A field value contains neither CR nor LF, which the parser of the reply ensures, nor other controls.
        let is_value =
            |line: &&[u8]| line.iter().all(|byte| *byte == b'\t' || !byte.is_ascii_control());
        let values = bytes.split(|byte| *byte == b'\n').filter(is_value);
        let with_cookies = cookies(values, request);
        assert!(with_cookies.ends_with(b"\r\n\r\nbody"));
        let limits = Limits { max_head_bytes: 1 << 20, ..Limits::default() };
        let parsed = RequestParser::new().parse(&with_cookies, &limits);
        let parsed = parsed.ok().flatten().expect("the request with cookies is valid");
        assert!(parsed.field_values("Cookie").count() <= 1);
        assert_eq!(parsed.fields().count() - parsed.field_values("Cookie").count(), 1);
    });
}
