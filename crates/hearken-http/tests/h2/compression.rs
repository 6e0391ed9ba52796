//! Compression of fields: the examples of RFC 7541 appendix C, errors, and sizes of the dynamic table.

use hearken_http::h2::{Config, ErrorCode, Limits};

use crate::raw::{END_HEADERS, END_STREAM, Endpoint, GET, HEADERS, block, frame, headers};

fn bytes(hex: &str) -> Vec<u8> {
    let digits: String = hex.split_whitespace().collect();
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
        .collect()
}

/// Sends the blocks as requests of one connection and returns the events.
fn requests(blocks: &[&str]) -> Vec<String> {
    let mut server = Endpoint::server(Config::default());
    for (index, block) in blocks.iter().enumerate() {
        let stream = 2 * index as u32 + 1;
        server.receive(&frame(HEADERS, END_HEADERS | END_STREAM, stream, &bytes(block))).unwrap();
    }
    server.events()
}

const REQUESTS: [&str; 3] = [
    "request 1 end=true GET / None [\"Host: www.example.com\"]",
    "request 3 end=true GET / None [\"Host: www.example.com\", \"cache-control: no-cache\"]",
    "request 5 end=true GET /index.html None [\"Host: www.example.com\", \
     \"custom-key: custom-value\"]",
];

// RFC 7541 appendix C.3.
#[test]
fn requests_without_huffman_coding() {
    let blocks = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    assert_eq!(requests(&blocks), REQUESTS);
}

// RFC 7541 appendix C.4.
#[test]
fn requests_with_huffman_coding() {
    let blocks = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];
    assert_eq!(requests(&blocks), REQUESTS);
}

/// Sends the blocks as responses to a client whose table has 256 bytes.
fn responses(blocks: &[&str]) -> Vec<String> {
    let limits = Limits { decoder_table_bytes: 256, ..Limits::default() };
    let mut client = Endpoint::client(Config { limits, ..Config::default() }, &[]);
    let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let request =
        hearken_http::RequestParser::new().parse(request, &Default::default()).unwrap().unwrap();
    for (index, block) in blocks.iter().enumerate() {
        let stream = client.connection.send_request(&request, true, &mut client.out).unwrap();
        // The first block announces the smaller table.
        let update = if index == 0 { &[0x3f, 0xe1, 0x01][..] } else { &[] };
        let block = [update, &bytes(block)].concat();
        let stream = stream.get();
        client.receive(&frame(HEADERS, END_HEADERS | END_STREAM, stream, &block)).unwrap();
    }
    client.events()
}

const RESPONSES: [&str; 3] = [
    "response 1 end=true 302 None [\"cache-control: private\", \
     \"date: Mon, 21 Oct 2013 20:13:21 GMT\", \"location: https://www.example.com\", \
     \"content-length: 0\"]",
    "response 3 end=true 307 None [\"cache-control: private\", \
     \"date: Mon, 21 Oct 2013 20:13:21 GMT\", \"location: https://www.example.com\", \
     \"content-length: 0\"]",
    "response 5 end=true 200 None [\"cache-control: private\", \
     \"date: Mon, 21 Oct 2013 20:13:22 GMT\", \"location: https://www.example.com\", \
     \"content-encoding: gzip\", \
     \"set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1\", \"content-length: 0\"]",
];

// RFC 7541 appendix C.5, with evictions.
#[test]
fn responses_without_huffman_coding() {
    let blocks = [
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a \
         3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "4803 3330 37c1 c0bf",
        "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 \
         677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 \
         553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
    ];
    assert_eq!(responses(&blocks), RESPONSES);
}

// RFC 7541 appendix C.6, with evictions.
#[test]
fn responses_with_huffman_coding() {
    let blocks = [
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e \
         919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 \
         821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed \
         4ee5 b106 3d50 07",
    ];
    assert_eq!(responses(&blocks), RESPONSES);
}

#[test]
fn invalid_blocks_end_the_connection() {
    for block in [
        &[0x80][..],                                       // index 0
        &[0x80 | 62],                                      // an entry that does not exist
        &[0xff, 0x80, 0x80, 0x80, 0x80, 0x01],             // a large integer
        &[0x7f],                                           // an incomplete integer
        &[0x40],                                           // no name
        &[0x40, 0x05, b'a'],                               // an incomplete name
        &[0x40, 0x01, b'a'],                               // no value
        &[0x40, 0x81, 0x00, 0x00],                         // invalid padding
        &[0x00, 0x01, b'a', 0x82, 0xff, 0xff],             // padding of 16 bits
        &[0x00, 0x01, b'a', 0x84, 0xff, 0xff, 0xff, 0xfc], // EOS
        &[0x82, 0x20],                                     // a size update after a field
        &[0x3f, 0xe2, 0x1f],                               // a table larger than 4096
    ] {
        let mut server = Endpoint::server(Config::default());
        let error = server.fail(&frame(HEADERS, END_HEADERS | END_STREAM, 1, block));
        assert_eq!(error.code, ErrorCode::COMPRESSION_ERROR, "{block:x?}: {error}");
    }
}

#[test]
fn a_reduced_table_must_be_confirmed() {
    let limits = Limits { decoder_table_bytes: 0, ..Limits::default() };
    let config = Config { limits, ..Config::default() };
    let error = Endpoint::server(config.clone()).fail(&headers(1, GET, true));
    assert_eq!(error.code, ErrorCode::COMPRESSION_ERROR);
    let mut server = Endpoint::server(config);
    let confirmed = [&[0x20][..], &block(GET)].concat();
    server.receive(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &confirmed)).unwrap();
    server.receive(&headers(3, GET, true)).unwrap();
    assert_eq!(server.events().len(), 2);
}

#[test]
fn the_peer_may_reduce_the_table_for_sent_fields() {
    let mut server = Endpoint::server(Config::default());
    for (stream, size) in [(1, 4096), (3, 100), (5, 0), (7, 4096)] {
        let mut client = Endpoint::client(Config::default(), &[]);
        let settings = [&[0, 1][..], &u32::to_be_bytes(size)].concat();
        server.receive(&frame(4, 0, 0, &settings)).unwrap();
        let id = server.request(&headers(stream, GET, true));
        server.out.clear();
        let fields =
            [("server", "x"), ("content-type", "text/html"), ("x-y", "z"), ("server", "x")];
        assert!(server.connection.respond(id, 200, fields, true, &mut server.out));
        let block = &server.out[9..];
        let starts_with_update = block[0] & 0xe0 == 0x20;
        assert_eq!(starts_with_update, stream != 1, "{block:x?}");
        if size == 4096 {
            // Each of these blocks starts with an empty table, so that another client can decode it.
            for _ in 0..=stream / 2 {
                let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
                let request = hearken_http::RequestParser::new()
                    .parse(request, &Default::default())
                    .unwrap()
                    .unwrap();
                client.connection.send_request(&request, true, &mut client.out).unwrap();
            }
            client.receive(&server.out).unwrap();
            assert_eq!(client.events()[0].matches("server: x").count(), 2);
        }
    }
}
