//! Shutdown with HTTP/2 connections.

use std::thread;

use crate::client::{DATA, END_STREAM, GOAWAY, HEADERS, PING, RawClient, frame, get_small};
use crate::common::{Origin, Recorder, Setup, Site, wait_until};

fn setups() -> [Setup; 2] {
    [Setup::named("epoll-edge"), Setup::tasks("epoll-edge")]
}

/// Returns the last stream and the error code of a GOAWAY frame.
fn goaway(payload: &[u8]) -> (u32, u32) {
    let number = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().unwrap());
    (number(0), number(4))
}

#[test]
fn closes_idle_connections_with_goaway() {
    let site = Site::new();
    for setup in setups() {
        let server = setup.serve(&site, |_| {});
        let mut client = RawClient::connect(server.addr(), &[]);
        client.send(get_small(1));
        client.expect(DATA);
        let ended = thread::spawn(move || server.end());
        assert_eq!(
            goaway(&client.expect(GOAWAY).payload),
            (i32::MAX as u32, 0),
            "the announcement"
        );
        assert_eq!(goaway(&client.expect(GOAWAY).payload), (1, 0));
        assert_eq!(client.read_end(), None);
        drop(client);
        ended.join().unwrap();
    }
}

#[test]
fn completes_requests_in_progress_and_ignores_new_ones() {
    for setup in setups() {
        let (requests, release) = (Recorder::new(), Recorder::new());
        let (seen, released) = (requests.clone(), release.clone());
        let origin = Origin::new(move |mut peer| {
            while let Some(request) = peer.request() {
                seen.add(request.target().to_owned());
                wait_until("the response is due", || released.len() > 0);
                peer.respond("late");
            }
        });
        let proxy = setup.proxy(&[origin.addr()], |_| {});
        let mut client = RawClient::connect(proxy.addr(), &[]);
        client.send(get_small(1));
        wait_until("the request is forwarded", || requests.len() == 1);
        let ended = thread::spawn(move || proxy.end());
        while goaway(&client.expect(GOAWAY).payload).0 != 1 {}
        client.send(get_small(3));
        client.send(frame(PING, 0, 0, &[7; 8]));
        assert_eq!(client.expect(PING).payload, [7; 8]);
        release.add(());
        assert_eq!(client.expect(HEADERS).stream, 1);
        let data = client.expect(DATA);
        assert_eq!((data.payload.as_slice(), data.flags), (&b"late"[..], END_STREAM));
        assert_eq!(client.read_end(), None);
        drop(client);
        ended.join().unwrap();
        assert_eq!(requests.take(), ["/small"]);
    }
}
