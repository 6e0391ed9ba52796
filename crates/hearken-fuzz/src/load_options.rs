//! Values of the load generator's options.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use hearken_load::fuzzing::url;
use hearken_load::{
    Count, Distribution, Expect, HostAddress, Objectives, Profile, SlowOptions, WebSocketOptions,
};

/// Parses a value. Its text, if it has one, must result in the same value.
fn round_trip<T: FromStr + Display + Debug>(text: &str) {
    let Ok(value) = text.parse::<T>() else { return };
    let shown = value.to_string();
    match shown.parse::<T>() {
        Ok(again) => assert_eq!(format!("{again:?}"), format!("{value:?}"), "{shown}"),
        Err(_) => panic!("{shown:?} is not parsed"),
    }
}

#[test]
fn load_option() {
    bolero::check!().for_each(|bytes: &[u8]| {
        let Ok(text) = str::from_utf8(bytes) else { return };
        round_trip::<Profile>(text);
        round_trip::<Distribution>(text);
        round_trip::<Count>(text);
        let _ = text.parse::<Expect>();
        let _ = text.parse::<Objectives>();
        let _ = text.parse::<HostAddress>();
        let _ = text.parse::<SlowOptions>();
        let _ = text.parse::<WebSocketOptions>();
        let _ = Profile::steps(text);
    });
}

// A valid URL results in a valid request line and Host field.
#[test]
fn load_url() {
    bolero::check!().for_each(|bytes: &[u8]| {
        let Ok(text) = str::from_utf8(bytes) else { return };
        let Ok((authority, target)) = url(text) else { return };
        let request = format!("GET {target} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
        let limits = hearken_http::Limits {
            max_head_bytes: 1 << 20,
            max_target_bytes: 1 << 20,
            ..Default::default()
        };
        let parsed = hearken_http::RequestParser::new().parse(request.as_bytes(), &limits);
        let parsed = parsed.ok().flatten().unwrap_or_else(|| panic!("invalid: {request:?}"));
        assert_eq!(parsed.head_len, request.len());
        assert_eq!(parsed.host, Some(authority.as_bytes()));
    });
}
