//! Servers that refuse requests, violate the protocol or stall.

use std::time::Instant;

use super::origin::{
    ACK, DATA, END_STREAM, GOAWAY, HEADERS, HTTP_1_1_REQUIRED, INITIAL_WINDOW_SIZE, INTERNAL_ERROR,
    MAX_CONCURRENT_STREAMS, PING, PUSH_PROMISE, REFUSED_STREAM, RST_STREAM, RawOrigin, RawPeer,
    SETTINGS, WINDOW_UPDATE, block, frame, goaway, head, ok, reset, settings,
};
use super::proxy;
use crate::behaviour::{exchange, get, post, request};
use crate::common::admin::{admin, metric_sum, wait_idle};
use crate::common::server::{proxy_config, upstreams_config};
use crate::common::{
    End, RunningServer, Setup, TEST_TIMEOUT, assert_took, content, ms, wait_until,
};

/// The frames that a server sends instead of a response on a stream.
type Fault = Box<dyn Fn(u32) -> Vec<u8> + Send + Sync>;

/// A name, what the server does before it is silent, the error that is counted, and the status.
type Silence = (&'static str, fn(&mut RawPeer), &'static str, u16);

/// Returns the value of a metric.
fn metric(proxy: &RunningServer, name: &str, label: &str) -> f64 {
    metric_sum(&admin(proxy, "GET", "/metrics"), name, label)
}

/// Answers the requests of a connection.
fn answer_all(peer: &mut RawPeer) {
    peer.begin(&[]);
    while let Some(stream) = peer.request() {
        peer.send(ok(stream, "ok"));
    }
}

/// Answers the first request of the first connection with these frames, and other connections normally.
fn failing_once(frames: impl Fn(u32) -> Vec<u8> + Send + Sync + 'static) -> RawOrigin {
    RawOrigin::new(move |number, mut peer| {
        if number > 0 {
            return answer_all(&mut peer);
        }
        peer.begin(&[]);
        if let Some(stream) = peer.request() {
            peer.send(frames(stream));
        }
        while let Some(stream) = peer.request() {
            peer.send(ok(stream, "ok"));
        }
    })
}

/// Sends requests again that the server has not processed: after GOAWAY, and refused ones.
pub(super) fn repeats_requests_that_were_not_processed(setup: &Setup) {
    for frames in [
        |_: u32| goaway(0, 0),
        |stream: u32| [goaway(0, 0), reset(stream, REFUSED_STREAM)].concat(),
    ] {
        let origin = failing_once(frames);
        let proxy = proxy(setup, origin.addr(), |_| {});
        let mut connection = proxy.connect();
        assert_eq!(exchange(&mut connection, request("DELETE", "/", "")).text(), "ok");
        assert_eq!(origin.accepted(), 2);
        assert_eq!(metric(&proxy, "hearken_upstream_failures_total", ""), 0.0);
    }
    // The connection of a stream that was refused is used again.
    let origin = RawOrigin::new(|_, mut peer| {
        peer.begin(&[]);
        let first = peer.request().unwrap();
        peer.send(reset(first, REFUSED_STREAM));
        while let Some(stream) = peer.request() {
            peer.send(ok(stream, "ok"));
        }
    });
    let proxy = proxy(setup, origin.addr(), |_| {});
    assert_eq!(exchange(&mut proxy.connect(), request("DELETE", "/", "")).text(), "ok");
    assert_eq!(origin.accepted(), 1);
}

/// Gives up after some attempts if the server refuses all requests.
pub(super) fn refused_requests_fail_after_some_attempts(setup: &Setup) {
    let origin = RawOrigin::new(|_, mut peer| {
        peer.begin(&[]);
        while let Some(stream) = peer.request() {
            peer.send(reset(stream, REFUSED_STREAM));
        }
    });
    let refusing = proxy(setup, origin.addr(), |_| {});
    assert_eq!(exchange(&mut refusing.connect(), get("/")).status(), 502);
    // A server that permits no streams.
    let origin = RawOrigin::new(|_, mut peer| {
        peer.begin(&[(MAX_CONCURRENT_STREAMS, 0)]);
        while let Some(stream) = peer.request() {
            peer.send(reset(stream, REFUSED_STREAM));
        }
    });
    let refusing = proxy(setup, origin.addr(), |_| {});
    assert_eq!(exchange(&mut refusing.connect(), get("/")).status(), 502);
}

/// Requests in progress end normally after GOAWAY, and new ones use another connection.
pub(super) fn completes_requests_after_goaway(setup: &Setup) {
    let origin = RawOrigin::new(|number, mut peer| {
        if number > 0 {
            return answer_all(&mut peer);
        }
        peer.begin(&[]);
        let stream = peer.request().unwrap();
        peer.send(head(stream, 0, &[(":status", "200")]));
        peer.send(frame(DATA, 0, stream, b"first "));
        peer.send(goaway(stream, 0));
        std::thread::sleep(ms(100));
        peer.send(frame(DATA, END_STREAM, stream, b"last"));
        peer.drain();
    });
    let proxy = proxy(setup, origin.addr(), |_| {});
    let mut connection = proxy.connect();
    assert_eq!(exchange(&mut connection, get("/")).text(), "first last");
    assert_eq!(exchange(&mut connection, get("/")).text(), "ok");
    assert_eq!(origin.accepted(), 2);
}

/// Answers 502 if a response violates the protocol. Other requests of the client are not affected.
pub(super) fn malformed_responses_are_answered_with_502(setup: &Setup) {
    let long = "x".repeat(120);
    let many = vec![("x-field", &*long); 400];
    let fields: Vec<(&str, &str)> = [(":status", "200")].into_iter().chain(many).collect();
    let large = block(&fields);
    let (first, rest) = large.split_at(16_000);
    let too_large = {
        let (first, rest) = (first.to_vec(), rest.to_vec());
        move |stream: u32| {
            let mut frames = frame(HEADERS, END_STREAM, stream, &first);
            for (index, piece) in rest.chunks(16_000).enumerate() {
                let is_last = (index + 1) * 16_000 >= rest.len();
                frames.extend(frame(9, if is_last { 4 } else { 0 }, stream, piece));
            }
            frames
        }
    };
    let faults: Vec<(&str, Fault)> = vec![
        ("no status", Box::new(|stream| head(stream, END_STREAM, &[("a", "b")]))),
        (
            "an upper-case name",
            Box::new(|stream| head(stream, END_STREAM, &[(":status", "200"), ("A", "b")])),
        ),
        (
            "a field of the connection",
            Box::new(|stream| {
                head(stream, END_STREAM, &[(":status", "200"), ("connection", "close")])
            }),
        ),
        ("status 101", Box::new(|stream| head(stream, 0, &[(":status", "101")]))),
        (
            "no content",
            Box::new(|stream| {
                head(stream, END_STREAM, &[(":status", "200"), ("content-length", "5")])
            }),
        ),
        ("DATA before HEADERS", Box::new(|stream| frame(DATA, END_STREAM, stream, b"x"))),
        (
            "a push promise",
            Box::new(|stream| {
                frame(
                    PUSH_PROMISE,
                    4,
                    stream,
                    &[&[0, 0, 0, 2][..], &block(&[(":path", "/")])].concat(),
                )
            }),
        ),
        ("a response on another stream", Box::new(|stream| ok(stream + 2, "x"))),
        ("a response on a stream of the server", Box::new(|_| ok(2, "x"))),
        ("a frame that is too large", Box::new(|stream| frame(DATA, 0, stream, &[0; 16_385]))),
        ("invalid compression", Box::new(|stream| frame(HEADERS, 5, stream, &[0xff, 0xff]))),
        ("invalid settings", Box::new(|_| settings(&[(INITIAL_WINDOW_SIZE, u32::MAX)]))),
        ("a head that is too large", Box::new(too_large)),
    ];
    for (name, fault) in faults {
        let origin = failing_once(fault);
        let proxy = proxy(setup, origin.addr(), |_| {});
        let mut connection = proxy.connect();
        assert_eq!(exchange(&mut connection, get("/")).status(), 502, "{name}");
        assert_eq!(metric(&proxy, "hearken_errors_total", "bad_response"), 1.0, "{name}");
        assert_eq!(exchange(&mut connection, get("/")).text(), "ok", "{name}");
    }
}

/// Closes the connection of the client if a response ends early, and does not mistake it for complete.
pub(super) fn incomplete_responses_are_aborted(setup: &Setup) {
    let begin = |stream: u32, fields: &[(&str, &str)]| {
        let fields = [&[(":status", "200")], fields].concat();
        [head(stream, 0, &fields), frame(DATA, 0, stream, b"part")].concat()
    };
    let faults: Vec<(&str, Fault)> = vec![
        (
            "a reset",
            Box::new(move |stream| [begin(stream, &[]), reset(stream, INTERNAL_ERROR)].concat()),
        ),
        (
            "the end before Content-Length",
            Box::new(move |stream| {
                let rest = frame(DATA, END_STREAM, stream, b"");
                [begin(stream, &[("content-length", "9")]), rest].concat()
            }),
        ),
        (
            "more than Content-Length",
            Box::new(move |stream| {
                let rest = frame(DATA, END_STREAM, stream, b"123456");
                [begin(stream, &[("content-length", "9")]), rest].concat()
            }),
        ),
        (
            "trailers that do not end the stream",
            Box::new(move |stream| [begin(stream, &[]), head(stream, 0, &[("a", "b")])].concat()),
        ),
        (
            "a connection error",
            Box::new(move |stream| [begin(stream, &[]), frame(PING, 0, 1, &[0; 8])].concat()),
        ),
    ];
    for (name, fault) in faults {
        let origin = failing_once(fault);
        let proxy = proxy(setup, origin.addr(), |_| {});
        let mut connection = proxy.connect();
        connection.send(get("/"));
        assert!(connection.message().is_none(), "{name}");
        assert!(matches!(connection.end, Some(End::Closed | End::Reset)), "{name}");
    }
    // The server closes the connection.
    let origin = RawOrigin::new(move |_, mut peer| {
        peer.begin(&[]);
        let stream = peer.request().unwrap();
        peer.send(begin(stream, &[]));
    });
    let proxy = proxy(setup, origin.addr(), |_| {});
    let mut connection = proxy.connect();
    connection.send(get("/"));
    assert!(connection.message().is_none());
    assert_eq!(metric(&proxy, "hearken_errors_total", "response_truncated"), 1.0);
}

/// Sends safe requests again, once, if the connection is closed before the response.
pub(super) fn repeats_safe_requests_after_a_close(setup: &Setup) {
    let closing = || {
        RawOrigin::new(|number, mut peer| {
            if number > 0 {
                return answer_all(&mut peer);
            }
            peer.begin(&[]);
            peer.request();
        })
    };
    let origin = closing();
    let safe = proxy(setup, origin.addr(), |_| {});
    assert_eq!(exchange(&mut safe.connect(), get("/")).text(), "ok");
    let origin = closing();
    let unsafe_proxy = proxy(setup, origin.addr(), |_| {});
    assert_eq!(exchange(&mut unsafe_proxy.connect(), post("/", "x")).status(), 502);
    assert_eq!(origin.accepted(), 1);
}

/// Respects the windows of the server, and changes of their initial size.
pub(super) fn respects_windows_of_the_server(setup: &Setup) {
    let origin = RawOrigin::new(|_, mut peer| {
        peer.begin(&[(INITIAL_WINDOW_SIZE, 0)]);
        let first = peer.request().unwrap();
        peer.send(ok(first, "ok"));
        let stream = peer.request().unwrap();
        let mut received = 0;
        let mut receive = |peer: &mut RawPeer, count: usize| {
            let until = received + count;
            while received < until {
                received += peer.expect(DATA).unwrap().payload.len();
            }
            assert_eq!(received, until);
        };
        std::thread::sleep(ms(50));
        peer.send(frame(WINDOW_UPDATE, 0, stream, &10u32.to_be_bytes()));
        receive(&mut peer, 10);
        // The window becomes larger, and then negative.
        peer.send(settings(&[(INITIAL_WINDOW_SIZE, 1000)]));
        receive(&mut peer, 1000);
        peer.send(settings(&[(INITIAL_WINDOW_SIZE, 500)]));
        peer.send(frame(WINDOW_UPDATE, 0, stream, &600u32.to_be_bytes()));
        receive(&mut peer, 100);
        peer.send(settings(&[(INITIAL_WINDOW_SIZE, 500_000)]));
        // The window of the connection ends first.
        receive(&mut peer, 65_535 - 1110);
        peer.send(frame(WINDOW_UPDATE, 0, 0, &1_000_000u32.to_be_bytes()));
        receive(&mut peer, 100_000 - 65_535);
        peer.send(ok(stream, "ok"));
        peer.drain();
    });
    let proxy = proxy(setup, origin.addr(), |_| {});
    let mut connection = proxy.connect();
    assert_eq!(exchange(&mut connection, get("/")).text(), "ok");
    let body = content(5, 100_000);
    let mut bytes = request("POST", "/", "Content-Length: 100000\r\n").into_bytes();
    bytes.extend_from_slice(body);
    assert_eq!(exchange(&mut connection, bytes).text(), "ok");
}

/// Limits how much of a response waits for a slow client, without delaying other clients.
pub(super) fn slow_clients_do_not_delay_others(setup: &Setup) {
    let origin = RawOrigin::new(|_, mut peer| {
        peer.begin(&[]);
        let (mut sent, mut slow, mut window) = (0, None, 65_535_i64);
        while let Some(received) = peer.frame() {
            let stream = received.stream;
            match received.kind {
                SETTINGS if received.flags & ACK == 0 => {
                    let initial = received
                        .payload
                        .chunks(6)
                        .find(|setting| setting[..2] == INITIAL_WINDOW_SIZE.to_be_bytes());
                    if let Some(&[_, _, a, b, c, d]) = initial {
                        window = u32::from_be_bytes([a, b, c, d]).into();
                    }
                }
                HEADERS if slow.is_none() => {
                    slow = Some(stream);
                    peer.send(head(stream, 0, &[(":status", "200")]));
                }
                HEADERS => peer.send(ok(stream, &sent.to_string())),
                WINDOW_UPDATE if Some(stream) == slow => {
                    let [a, b, c, d] = received.payload[..].try_into().unwrap();
                    window += i64::from(u32::from_be_bytes([a, b, c, d]));
                }
                _ => {}
            }
            while let (Some(stream), 1..) = (slow, window) {
                let count = window.min(16_384);
                peer.send(frame(DATA, 0, stream, &vec![7; count as usize]));
                (window, sent) = (window - count, sent + count);
            }
        }
    });
    let proxy = proxy(setup, origin.addr(), |_| {});
    let mut slow = proxy.connect().with_receive_buffer(4096);
    slow.send(get("/slow"));
    slow.receive_until(|reader| reader.has_head() || reader.advance().is_err());
    let mut last = -1;
    wait_until("no more is sent to the slow client", || {
        let response = exchange(&mut proxy.connect(), get("/"));
        let sent: i64 = response.text().parse().unwrap();
        std::thread::sleep(ms(50));
        std::mem::replace(&mut last, sent) == sent
    });
    // The socket buffers of both sides, and the window.
    assert!(last < 12 << 20, "{last}");
    assert_eq!(origin.accepted(), 1);
}

/// Waits for servers at most as long as configured.
pub(super) fn silent_servers_time_out(setup: &Setup) {
    let cases: [Silence; 3] = [
        ("no settings", |_| {}, "connect_timeout", 504),
        ("no response", |peer| peer.begin(&[]), "response_timeout", 504),
        (
            "no window",
            |peer| {
                peer.begin(&[(INITIAL_WINDOW_SIZE, 0)]);
                let stream = peer.request().unwrap();
                peer.send(ok(stream, "ok"));
            },
            "send_timeout",
            504,
        ),
    ];
    for (name, begin, error, status) in cases {
        let origin = RawOrigin::new(move |_, mut peer| {
            begin(&mut peer);
            peer.drain();
        });
        let proxy = proxy(setup, origin.addr(), |config| {
            upstreams_config(config).max_attempts = std::num::NonZeroU32::MIN;
            let timeouts = &mut proxy_config(config).timeouts;
            timeouts.connect = ms(200);
            timeouts.send = ms(200);
            if name == "no response" {
                timeouts.response_header = ms(200);
            }
        });
        let since = Instant::now();
        // Without settings, only the second request waits for them.
        let mut first = proxy.connect();
        if name == "no settings" {
            first.send(get("/first"));
            wait_until("the first request is sent", || {
                metric(&proxy, "hearken_upstream_connections_opened_total", "") == 1.0
            });
        }
        if name == "no window" {
            // The window applies once the settings are known.
            assert_eq!(exchange(&mut first, get("/first")).text(), "ok");
        }
        assert_eq!(exchange(&mut proxy.connect(), post("/", "hello")).status(), status, "{name}");
        assert_took(since, ms(200), name);
        assert!(metric(&proxy, "hearken_errors_total", error) >= 1.0, "{name}");
        first.reset();
    }
}

/// Ends a response body that stalls.
pub(super) fn stalled_responses_time_out(setup: &Setup) {
    let origin = failing_once(|stream| {
        [head(stream, 0, &[(":status", "200")]), frame(DATA, 0, stream, b"part")].concat()
    });
    let proxy = proxy(setup, origin.addr(), |config| {
        proxy_config(config).timeouts.response_body = ms(200);
    });
    let mut connection = proxy.connect();
    connection.send(get("/"));
    assert!(connection.message().is_none());
    assert_eq!(metric(&proxy, "hearken_errors_total", "response_body_timeout"), 1.0);
    wait_idle(&proxy).unwrap();
}

/// Resets the stream of a client that disconnects. The connection serves further requests.
pub(super) fn resets_the_streams_of_disconnected_clients(setup: &Setup) {
    let (sender, received) = std::sync::mpsc::channel();
    let origin = RawOrigin::new(move |_, mut peer| {
        peer.begin(&[]);
        let first = peer.request().unwrap();
        sender.send(()).unwrap();
        assert_eq!(peer.expect(RST_STREAM).unwrap().stream, first);
        sender.send(()).unwrap();
        while let Some(stream) = peer.request() {
            peer.send(ok(stream, "ok"));
        }
    });
    let proxy = proxy(setup, origin.addr(), |_| {});
    let mut connection = proxy.connect();
    connection.send(get("/"));
    received.recv_timeout(TEST_TIMEOUT).unwrap();
    connection.reset();
    received.recv_timeout(TEST_TIMEOUT).unwrap();
    assert_eq!(exchange(&mut proxy.connect(), get("/")).text(), "ok");
    assert_eq!(origin.accepted(), 1);
}

/// Opens another connection when the first has as many streams as the server permits.
pub(super) fn opens_connections_as_streams_are_needed(setup: &Setup) {
    // No request is answered before all have arrived.
    let all = std::sync::Barrier::new(3);
    let origin = RawOrigin::new(move |_, mut peer| {
        peer.begin(&[(MAX_CONCURRENT_STREAMS, 2)]);
        let streams: Vec<u32> = (0..2).filter_map(|_| peer.request()).collect();
        all.wait();
        streams.into_iter().for_each(|stream| peer.send(ok(stream, "ok")));
        peer.drain();
    });
    let proxy = proxy(setup, origin.addr(), |_| {});
    let mut clients: Vec<_> = (0..6).map(|_| proxy.connect()).collect();
    clients.iter_mut().for_each(|client| client.send(get("/")));
    for client in &mut clients {
        assert_eq!(client.expect_response().text(), "ok");
    }
    assert_eq!(origin.accepted(), 3);
}

/// Answers PING, acknowledges SETTINGS, and ends the connection properly.
pub(super) fn answers_control_frames(setup: &Setup) {
    let (sender, receiver) = std::sync::mpsc::channel();
    let origin = RawOrigin::new(move |_, mut peer| {
        peer.begin(&[]);
        let stream = peer.request().unwrap();
        peer.send(frame(PING, 0, 0, b"12345678"));
        let pong = loop {
            let frame = peer.expect(PING).unwrap();
            if frame.flags & ACK != 0 {
                break frame;
            }
        };
        assert_eq!(pong.payload, b"12345678");
        peer.send(ok(stream, "ok"));
        let last = peer.expect(GOAWAY).map(|frame| frame.payload[4..].to_vec());
        sender.send(last).unwrap();
    });
    let proxy = proxy(setup, origin.addr(), |_| {});
    assert_eq!(exchange(&mut proxy.connect(), get("/")).text(), "ok");
    proxy.end();
    // Over some mechanisms the connection is closed before the frame is sent.
    assert!(receiver.recv().unwrap().is_none_or(|code| code == [0; 4]));
}

/// Sends a request again in HTTP/1.1 if the server requires that.
pub(super) fn repeats_requests_in_http_1(setup: &Setup) {
    let origin = RawOrigin::new(|number, mut peer| {
        use std::io::Read;
        if number == 0 {
            peer.begin(&[]);
            let stream = peer.request().unwrap();
            peer.send(reset(stream, HTTP_1_1_REQUIRED));
            return peer.drain();
        }
        let mut bytes = [0; 4096];
        let count = peer.stream.read(&mut bytes).unwrap();
        assert!(bytes[..count].starts_with(b"GET / HTTP/1.1\r\n"));
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nold");
        peer.drain();
    });
    let proxy = proxy(setup, origin.addr(), |_| {});
    assert_eq!(exchange(&mut proxy.connect(), get("/")).text(), "old");
}
