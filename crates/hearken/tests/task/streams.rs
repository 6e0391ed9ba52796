//! Operations of streams and listeners, and what remains when their futures are dropped.

use std::io::{ErrorKind, IoSlice, Write};
use std::rc::Rc;
use std::time::Duration;

use hearken::io::{Body, Buffer, CloseMode, FilePart, Outgoing, Relay};
use hearken::task::{self, TcpListener, TcpStream, UnixListener, UnixStream};

use crate::Case;
use crate::net::{
    LONG, executor, expect, loopback, pair, pair_of, pattern, poll_once, receive_all, run,
};

/// Starts a task that sends everything back.
fn spawn_echo(stream: TcpStream) {
    drop(task::spawn(async move {
        loop {
            let bytes = stream.receive().await.unwrap();
            if bytes.is_empty() {
                return;
            }
            stream.send(bytes.into()).await.unwrap();
        }
    }));
}

/// Checks that bytes come back as they were sent.
pub(crate) fn echoes_bytes_of_all_lengths<I: Relay + 'static>(case: &Case<'_, I>) {
    run(case, async {
        for length in [1, 1000, 100_000] {
            let (client, server) = pair().await;
            spawn_echo(server);
            let bytes = pattern(length);
            let (sent, sender) = (bytes.clone(), client.clone());
            let sending = task::spawn(async move { sender.write_all(&sent).await });
            expect(&client, &bytes).await;
            sending.await.unwrap().unwrap();
        }
    });
}

/// Checks reads into buffers that are smaller than what arrives.
pub(crate) fn copies_bytes_in_pieces<I: Relay + 'static>(case: &Case<'_, I>) {
    run(case, async {
        let (client, server) = pair().await;
        client.write_all(&pattern(100)).await.unwrap();
        client.shutdown().await.unwrap();
        let (mut all, mut buffer) = (Vec::new(), [0; 7]);
        loop {
            server.readable().await.unwrap();
            let count = server.read(&mut buffer).await.unwrap();
            if count == 0 {
                break;
            }
            all.extend_from_slice(&buffer[..count]);
        }
        assert_eq!(all, pattern(100));
        assert_eq!(server.read(&mut buffer).await.unwrap(), 0);
    });
}

/// Checks that a task can return bytes that it does not need yet.
pub(crate) fn returned_bytes_are_received_first<I: Relay + 'static>(case: &Case<'_, I>) {
    run(case, async {
        let (client, server) = pair().await;
        client.write_all(b"first").await.unwrap();
        let mut bytes = server.receive().await.unwrap();
        assert_eq!(bytes[0], b'f');
        server.put_back(bytes);
        assert!(server.has_input());
        expect(&server, b"first").await;
        client.write_all(b"12").await.unwrap();
        bytes = server.receive().await.unwrap();
        bytes.consume(1);
        server.put_back(bytes);
        expect(&server, b"2").await;
        client.write_all(b"second").await.unwrap();
        expect(&server, b"second").await;
        assert!(!server.has_input());
    });
}

/// Checks vectored writes, of few and of many bytes.
pub(crate) fn writes_from_several_pieces<I: Relay + 'static>(case: &Case<'_, I>) {
    run(case, async {
        let (client, server) = pair().await;
        let long = pattern(70_000);
        let pieces = [IoSlice::new(b""), IoSlice::new(b"ab"), IoSlice::new(b"cd")];
        let count = client.write_vectored(&pieces).await.unwrap();
        expect(&server, &b"abcd"[..count]).await;
        let count = client.write_vectored(&[IoSlice::new(&long), pieces[1]]).await.unwrap();
        expect(&server, &long[..count]).await;
        assert_eq!(client.write_vectored(&[]).await.unwrap(), 0);
    });
}

/// Checks that a file range follows its head.
pub(crate) fn sends_heads_and_bodies<I: Relay + 'static>(case: &Case<'_, I>) {
    run(case, async {
        let (client, server) = pair().await;
        let bytes = pattern(300_000);
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        let file = Rc::new(file.into());
        let sending = task::spawn(async move {
            let body = Body::File(FilePart { file: Rc::clone(&file), offset: 0, length: 300_000 });
            client.send(Outgoing { head: Buffer::default(), body }).await.unwrap();
            let body = Body::File(FilePart { file, offset: 0, length: 300_001 });
            let error = client.send(Outgoing { head: Buffer::default(), body }).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        });
        expect(&server, &bytes).await;
        expect(&server, &bytes).await;
        sending.await.unwrap();
    });
}

/// Checks that a peer receives an answer after it has shut down its side.
pub(crate) fn half_closed_stream_still_sends<I: Relay + 'static>(case: &Case<'_, I>) {
    run(case, async {
        let (client, server) = pair().await;
        client.write_all(b"question").await.unwrap();
        client.shutdown().await.unwrap();
        assert_eq!(receive_all(&server).await, b"question");
        server.write_all(b"answer").await.unwrap();
        drop(server);
        assert_eq!(receive_all(&client).await, b"answer");
    });
}

/// Checks that a write is ready only when the peer has made space for its bytes.
pub(crate) fn writes_wait_for_a_slow_peer<I: Relay + 'static>(case: &Case<'_, I>) {
    run(case, async {
        let (client, server) = pair().await;
        let bytes = pattern(LONG);
        let sent = bytes.clone();
        let sending = task::spawn(async move {
            client.write_all(&sent).await.unwrap();
            client.flush().await.unwrap();
        });
        task::sleep(Duration::from_millis(10)).await;
        assert!(!sending.is_finished());
        expect(&server, &bytes).await;
        sending.await.unwrap();
        assert_eq!(receive_all(&server).await, b"");
    });
}

/// Checks the addresses of both sides.
pub(crate) fn addresses_of_both_sides_match<I: Relay + 'static>(case: &Case<'_, I>) {
    run(case, async {
        let (client, server) = pair().await;
        assert_eq!(client.local_addr().unwrap(), server.peer_addr().unwrap());
        assert_eq!(client.peer_addr().unwrap(), server.local_addr().unwrap());
    });
}

/// Checks the error of a connect to a port on which nothing listens.
pub(crate) fn refused_connect_fails<I: Relay + 'static>(case: &Case<'_, I>) {
    run(case, async {
        let listener = TcpListener::bind(loopback()).unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let error = TcpStream::connect(address).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    });
}

/// Checks that a reset ends waiting receives and later writes.
pub(crate) fn reset_fails_both_directions<I: Relay + 'static>(case: &Case<'_, I>) {
    run(case, async {
        let (client, server) = pair().await;
        let waiting = server.clone();
        let receiving = task::spawn(async move { waiting.receive().await.map(|_| ()) });
        task::yield_now().await;
        client.reset();
        let error = receiving.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        assert!(server.receive().await.is_err());
        while server.write_all(b"bytes").await.is_ok() {}
        assert!(server.write_all(b"bytes").await.is_err());
        assert!(server.flush().await.is_err());
    });
}

/// Checks the last send of a connection, in both modes.
pub(crate) fn finish_delivers_the_last_bytes<I: Relay + 'static>(case: &Case<'_, I>) {
    run(case, async {
        for mode in [CloseMode::Close, CloseMode::Shutdown] {
            let (client, server) = pair().await;
            server.write_all(b"first ").await.unwrap();
            server.finish(b"last", mode).await.unwrap();
            assert_eq!(receive_all(&client).await, b"first last");
        }
        let (client, server) = pair().await;
        client.reset();
        while server.write_all(b"bytes").await.is_ok() {}
        assert!(server.finish(b"last", CloseMode::Close).await.is_err());
    });
}

/// Checks that waiting operations fail at the deadline and work after it is moved.
pub(crate) fn deadline_fails_operations_until_moved<I: Relay + 'static>(case: &Case<'_, I>) {
    run(case, async {
        let (client, server) = pair().await;
        let end = task::now() + Duration::from_millis(3);
        server.set_deadline(Some(end));
        assert_eq!(server.receive().await.unwrap_err().kind(), ErrorKind::TimedOut);
        assert!(task::now() >= end);
        assert_eq!(server.write_all(b"bytes").await.unwrap_err().kind(), ErrorKind::TimedOut);
        server.set_deadline(Some(task::now() + Duration::from_secs(3600)));
        client.write_all(b"more").await.unwrap();
        expect(&server, b"more").await;
        server.set_deadline(None);
        server.write_all(b"back").await.unwrap();
        expect(&client, b"back").await;
    });
}

/// Checks that only the last clone closes the connection.
pub(crate) fn streams_close_with_the_last_clone<I: Relay + 'static>(case: &Case<'_, I>) {
    run(case, async {
        let (client, server) = pair().await;
        let clone = server.clone();
        drop(server);
        client.write_all(b"bytes").await.unwrap();
        expect(&clone, b"bytes").await;
        drop(clone);
        assert_eq!(receive_all(&client).await, b"");
    });
}

/// Checks that a reset ends the operations of other clones, and a relay in both roles.
pub(crate) fn reset_ends_the_operations_of_clones<I: Relay + 'static>(case: &Case<'_, I>) {
    run(case, async {
        let listener = TcpListener::bind(loopback()).unwrap();
        let (_client, server) = pair_of(&listener).await;
        let clone = server.clone();
        let receiving = task::spawn(async move { clone.receive().await.map(drop) });
        let clone = server.clone();
        let sending = task::spawn(async move { clone.write_all(&pattern(LONG)).await });
        let (_other_client, other) = pair_of(&listener).await;
        task::sleep(Duration::from_millis(2)).await;
        server.reset();
        assert_eq!(receiving.await.unwrap().unwrap_err().kind(), ErrorKind::NotConnected);
        assert!(sending.await.unwrap().is_err());
        let (_third_client, third) = pair_of(&listener).await;
        let (from, to) = (other.clone(), third.clone());
        let forward = task::spawn(async move { from.relay_to(&to, u64::MAX).await });
        let to = other.clone();
        let back = task::spawn(async move { third.relay_to(&to, u64::MAX).await });
        task::sleep(Duration::from_millis(2)).await;
        other.reset();
        forward.await.unwrap();
        back.await.unwrap();
    });
}

/// Checks streams over Unix sockets.
pub(crate) fn connects_over_unix_sockets<I: Relay + 'static>(case: &Case<'_, I>) {
    run(case, async {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        assert_eq!(UnixStream::connect(&path).await.unwrap_err().kind(), ErrorKind::NotFound);
        let listener = UnixListener::bind(&path).unwrap();
        let client = UnixStream::connect(&path).await.unwrap();
        let server = listener.accept().await.unwrap();
        client.write_all(b"bytes").await.unwrap();
        expect(&server, b"bytes").await;
        drop(server);
        assert_eq!(receive_all(&client).await, b"");
    });
}

/// Checks that all bytes arrive, although most futures that receive are dropped early.
pub(crate) fn dropped_receives_lose_no_bytes<I: Relay + 'static>(case: &Case<'_, I>) {
    run(case, async {
        let (client, server) = pair().await;
        let bytes = pattern(30_000);
        let sent = bytes.clone();
        drop(task::spawn(async move {
            for piece in sent.chunks(997) {
                client.write_all(piece).await.unwrap();
                task::yield_now().await;
            }
        }));
        let (mut all, mut buffer) = (Vec::new(), [0; 100]);
        let mut round = 0;
        loop {
            round += 1;
            let count = match round % 3 {
                0 => match poll_once(server.read(&mut buffer)).await {
                    Some(count) => count.unwrap(),
                    None => continue,
                },
                1 => {
                    let receiving = task::timeout(Duration::from_micros(1), server.receive());
                    let Ok(received) = receiving.await else { continue };
                    let received = received.unwrap();
                    all.extend_from_slice(&received);
                    if received.is_empty() {
                        break;
                    }
                    continue;
                }
                _ => {
                    drop(poll_once(server.readable()).await);
                    server.read(&mut buffer).await.unwrap()
                }
            };
            all.extend_from_slice(&buffer[..count]);
            if count == 0 {
                break;
            }
        }
        assert!(all == bytes, "the received bytes differ");
    });
}

/// Checks that each of many writes that are dropped arrives as a whole or not at all.
pub(crate) fn dropped_write_is_sent_whole_or_not_at_all<I: Relay + 'static>(case: &Case<'_, I>) {
    run(case, async {
        let (client, server) = pair().await;
        let receiving = task::spawn(async move {
            task::sleep(Duration::from_millis(5)).await;
            receive_all(&server).await
        });
        let mut begun = Vec::new();
        for round in 0..200_u8 {
            let piece = vec![round; 60_000];
            // Without a wait before, a write has begun when it was polled.
            let idle = poll_once(client.flush()).await.is_some();
            let completed = poll_once(client.write_all(&piece)).await;
            if idle || completed.is_some() {
                begun.push(round);
            } else {
                task::yield_now().await;
            }
        }
        client.shutdown().await.unwrap();
        let received = receiving.await.unwrap();
        let pieces: Vec<u8> = received.chunks(60_000).map(|piece| piece[0]).collect();
        assert_eq!(pieces, begun);
        assert!(received.chunks(60_000).all(|piece| piece.len() == 60_000));
        assert!(received.chunks(60_000).all(|piece| piece.iter().all(|byte| *byte == piece[0])));
    });
}

/// Checks that each client is served, although most futures that accept are dropped early.
pub(crate) fn dropped_accepts_lose_no_connection<I: Relay + 'static>(case: &Case<'_, I>) {
    run(case, async {
        let listener = TcpListener::bind(loopback()).unwrap();
        let address = listener.local_addr().unwrap();
        let clients: Vec<_> = (0..20)
            .map(|index: u8| {
                task::spawn(async move {
                    let stream = TcpStream::connect(address).await.unwrap();
                    stream.write_all(&[index]).await.unwrap();
                    expect(&stream, &[index]).await;
                })
            })
            .collect();
        let mut accepted = 0;
        while accepted < 20 {
            match poll_once(listener.accept()).await {
                Some(stream) => spawn_echo(stream.unwrap()),
                None => {
                    task::yield_now().await;
                    continue;
                }
            }
            accepted += 1;
        }
        for client in clients {
            client.await.unwrap();
        }
    });
}

/// Checks that tasks that keep received bytes do not keep others from receiving.
pub(crate) fn held_bytes_do_not_exhaust_the_pool<I: Relay + 'static>(case: &Case<'_, I>) {
    let mut executor = executor(case);
    let handle = executor.io();
    let done = executor.block_on(async move {
        let listener = TcpListener::bind(loopback()).unwrap();
        let mut held = Vec::new();
        for index in 0..20_u8 {
            let (client, server) = pair_of(&listener).await;
            client.write_all(&[index; 8]).await.unwrap();
            // Some bytes wait in the stream, and some are held by the task.
            let bytes = if index % 2 == 0 { Some(server.receive().await.unwrap()) } else { None };
            held.push((client, server, bytes));
        }
        for (index, (_, _, bytes)) in held.iter().enumerate() {
            if let Some(bytes) = bytes {
                assert!(!bytes.is_empty() && bytes.iter().all(|byte| *byte == index as u8));
            }
        }
        handle.with(|io| assert!(!hearken::io::Io::pool(io).is_exhausted()));
    });
    done.unwrap();
}
