//! Requests with a body.

use std::thread;

use crate::support::{HUGE, Site, Way, get, ms, request};

/// Bodies, with the fields that announce them, and the content.
fn framed(content: &[u8]) -> [(String, Vec<u8>); 2] {
    let mut chunked = Vec::new();
    for chunk in content.chunks(1000) {
        chunked.extend_from_slice(format!("{:x};name=value\r\n", chunk.len()).as_bytes());
        chunked.extend_from_slice(chunk);
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\nTrailer: yes\r\n\r\n");
    [
        (format!("Content-Length: {}\r\n", content.len()), content.to_vec()),
        ("Transfer-Encoding: chunked\r\n".to_owned(), chunked),
    ]
}

pub(crate) fn discarded_before_the_answer(way: &Way) {
    let site = Site::new();
    let server = way.serve(&site, |_| {});
    // What looks like requests, to be answered by nobody.
    let content = get("/cached").repeat(3000);
    let mut client = server.connect();
    for (method, status) in [("POST", 405), ("GET", 200), ("DELETE", 405)] {
        for (fields, body) in framed(&content) {
            for piece in [body.len(), 30_011] {
                client.send(request(&format!("{method} /small"), &fields));
                for piece in body.chunks(piece) {
                    client.send(piece);
                }
                let answer = client.answer();
                assert_eq!(answer.status, status, "{method} with {fields}");
                assert_eq!(client.get("/small").body, b"small\n", "after {method} with {fields}");
            }
        }
        for (fields, body) in framed(&content[..100]) {
            let head = request(&format!("{method} /small"), &fields);
            client.send([head, body, get("/empty")].concat());
            assert_eq!(client.answer().status, status, "{method} with {fields} in one write");
            assert_eq!(client.answer().length(), 0);
        }
        // The end of the body in pieces.
        for (fields, body) in framed(b"ab") {
            client.send(request(&format!("{method} /small"), &fields));
            for byte in body {
                client.send([byte]);
                thread::sleep(ms(1));
            }
            assert_eq!(client.answer().status, status, "{method} with {fields} in bytes");
        }
    }
}

pub(crate) fn arriving_while_an_earlier_answer_is_sent(way: &Way) {
    let site = Site::with_huge();
    let server = way.serve(&site, |_| {});
    for (fields, body) in framed(&[b'x'; 200_000]) {
        let mut client = server.connect();
        client.send([get("/huge"), request("POST /small", &fields)].concat());
        assert_eq!(client.head().length(), HUGE);
        thread::scope(|scope| {
            let mut stream = client.stream.try_clone().unwrap();
            scope.spawn(move || {
                use std::io::Write;
                stream.write_all(&[body, get("/small")].concat()).unwrap();
            });
            thread::sleep(ms(20)); // So that some of it arrives meanwhile.
            client.skip(HUGE);
            assert_eq!(client.answer().status, 405, "{fields}");
            assert_eq!(client.answer().body, b"small\n", "{fields}");
        });
    }
}

/// Who has nothing more to send, and owes a body, is not waited for.
pub(crate) fn ending_early(way: &Way) {
    let site = Site::with_huge();
    let server = way.serve(&site, |_| {});
    let part = [request("POST /small", "Content-Length: 100\r\n"), b"part".to_vec()].concat();
    let mut client = server.connect();
    client.send(&part);
    client.end_sending();
    assert_eq!(client.drain(), 0);
    // The end is there before the body's turn comes.
    let mut client = server.connect();
    client.send([get("/huge"), part].concat());
    client.end_sending();
    assert_eq!(client.head().length(), HUGE);
    client.skip(HUGE);
    client.ends();
}

pub(crate) fn malformed_chunks(way: &Way) {
    let site = Site::new();
    let server = way.serve(&site, |_| {});
    let bodies = [
        "x\r\n",
        "5\nhello\n",
        "5\r\nhello!\r\n",
        "-1\r\n",
        "11111111111111111\r\n",
        "0\r\nbad\r\n",
    ];
    for body in bodies {
        for together in [true, false] {
            let mut client = server.connect();
            let head = request("GET /small", "Transfer-Encoding: chunked\r\n");
            if together {
                client.send([&head, body.as_bytes(), &get("/small")].concat());
            } else {
                client.send(head);
                thread::sleep(ms(2));
                client.send(body);
            }
            let answer = client.answer();
            assert_eq!(
                (answer.status, answer.field("Connection")),
                (400, Some("close")),
                "{body:?}"
            );
            client.ends();
        }
    }
}

pub(crate) fn over_the_limit(way: &Way) {
    let site = Site::new();
    let server = way.serve(&site, |config| config.site().unwrap().body_limit = 1000);
    for (fields, body) in framed(&[b'x'; 1000]) {
        let mut client = server.connect();
        client.send([request("GET /small", &fields), body].concat());
        assert_eq!(client.answer().status, 200, "{fields}");
    }
    for (fields, body) in framed(&[b'x'; 1001]) {
        let mut client = server.connect();
        client.send([request("GET /small", &fields), body, get("/small")].concat());
        assert_eq!(client.answer().status, 413, "{fields}");
        client.ends();
    }
}

pub(crate) fn continue_is_sent_to_who_waits(way: &Way) {
    let site = Site::new();
    let server = way.serve(&site, |config| config.site().unwrap().body_limit = 1000);
    let mut client = server.connect();
    // More than an octet counts.
    for _ in 0..300 {
        client.send(request("GET /small", "Expect: 100-continue\r\nContent-Length: 4\r\n"));
        assert_eq!(client.answer().status, 100);
        client.send("body");
        assert_eq!(client.answer().body, b"small\n");
    }
    // Who did not wait needs none.
    let head = request("POST /small", "Expect: 100-continue\r\nContent-Length: 4\r\n");
    client.send([head, b"body".to_vec()].concat());
    assert_eq!(client.answer().status, 405);
    // Nor does whose body is refused.
    client.send(request("POST /small", "Expect: 100-continue\r\nContent-Length: 1001\r\n"));
    assert_eq!(client.answer().status, 413);
    client.ends();
    let mut client = server.connect();
    client.send(request("POST /small", "Expect: nothing\r\nContent-Length: 4\r\n"));
    assert_eq!(client.answer().status, 417);
    client.ends();
}
