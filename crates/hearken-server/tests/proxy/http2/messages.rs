//! Requests and responses.

use super::origin::H2Origin;
use super::proxy;
use crate::behaviour::{exchange, get, post, request};
use crate::common::{Kind, Setup, content};

/// Forwards requests of every kind.
pub(super) fn forwards_requests_and_responses(setup: &Setup) {
    let origin = H2Origin::new(100);
    let proxy = proxy(setup, origin.addr(), |_| {});
    let mut connection = proxy.connect();
    let response = exchange(&mut connection, get("/fields?a=b"));
    assert_eq!(response.status(), 200);
    assert_eq!(response.field("x-uri").unwrap(), "http://site.test/fields?a=b");
    assert!(response.field("x-got-via").unwrap().starts_with("1.1 hearken-"), "{response:?}");
    assert!(response.field("via").unwrap().starts_with("2.0 hearken-"), "{response:?}");
    for status in [204, 304, 404, 503] {
        let response = exchange(&mut connection, get(&format!("/status/{status}")));
        assert_eq!(response.status(), status);
    }
    connection.send(request("HEAD", "/bytes/10", ""));
    assert_eq!(connection.final_response(Kind::Bodiless).unwrap().status(), 200);
    assert_eq!(exchange(&mut connection, get("/announced")).text(), "announced");
    assert_eq!(exchange(&mut connection, get("/bytes/0")).text(), "");
    let response = exchange(&mut connection, get("/trailers"));
    assert_eq!(response.text(), "content");
    assert_eq!(origin.accepted(), 1);
}

/// Forwards content larger than all windows.
pub(super) fn forwards_content_in_both_directions(setup: &Setup) {
    let origin = H2Origin::new(100);
    let proxy = proxy(setup, origin.addr(), |_| {});
    let mut connection = proxy.connect();
    let response = exchange(&mut connection, post("/echo", "hello"));
    assert_eq!(response.text(), "hello");
    let large = content(3, 1_000_000);
    let mut message =
        request("POST", "/echo", &format!("Content-Length: {}\r\n", large.len())).into_bytes();
    message.extend_from_slice(large);
    connection.send(message);
    assert!(connection.expect_response().body == large);
    // The response begins before the request is complete, so no other request follows.
    connection.assert_closed();
    let mut connection = proxy.connect();
    let response = exchange(&mut connection, get("/bytes/2000000"));
    assert!(response.body == content(1, 2_000_000));
}
