//! Tasks that operate connections by their tokens.

use std::cell::{Cell, RefCell};
use std::future::pending;
use std::rc::Rc;
use std::time::Duration;

use hearken::io::{CompletionKind, Io, ListenOptions, Relay};
use hearken::task::{self, Completions, IoHandle, TcpListener, TcpStream};

use crate::Case;
use crate::net::{executor, expect, loopback, pair, pattern};

/// Sends everything back, by operations on the token, until the end of the stream.
async fn echo<I: Relay + 'static>(io: IoHandle<I>, connection: Completions) -> usize {
    let token = connection.token();
    io.with(|io| io.start(token));
    let mut sends = 0;
    while let Some(kind) = connection.next().await {
        match kind {
            CompletionKind::Received(bytes) => io.with(|io| {
                sends += usize::from(!io.send_now(token, &bytes));
                io.set_deadline(token, Some(io.now() + Duration::from_secs(3600)));
            }),
            CompletionKind::Sent(result) => {
                result.unwrap();
                sends -= 1;
            }
            CompletionKind::End => break,
            other => panic!("{other:?}"),
        }
    }
    sends
}

/// Checks a server that drives connections as an engine without I/O does.
pub(crate) fn completions_drive_a_server<I: Relay + 'static>(case: &Case<'_, I>) {
    let mut executor = executor(case);
    let handle = executor.io();
    let test = async move {
        let (client, server) = pair().await;
        client.write_all(b"first").await.unwrap();
        let bytes = server.receive().await.unwrap();
        server.put_back(bytes);
        let driver = task::spawn(echo(handle, server.into_completions()));
        expect(&client, b"first").await;
        let bytes = pattern(50_000);
        let (sent, sender) = (bytes.clone(), client.clone());
        drop(task::spawn(async move { sender.write_all(&sent).await.unwrap() }));
        expect(&client, &bytes).await;
        client.shutdown().await.unwrap();
        assert_eq!(driver.await.unwrap(), 0);
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    };
    executor.block_on(test).unwrap();
}

/// Checks a listener without a stream, and wake-ups, which have no token.
pub(crate) fn unclaimed_completions_reach_their_task<I: Relay + 'static>(case: &Case<'_, I>) {
    let mut executor = executor(case);
    let handle = executor.io();
    let woken = Rc::new(Cell::new(0));
    let count = Rc::clone(&woken);
    let io = handle.clone();
    let listener = handle.with(|io| {
        let listener = io.listen(&loopback().into(), &ListenOptions::default()).unwrap();
        io.start(listener);
        listener
    });
    drop(executor.spawn(async move {
        let mut completions = io.unclaimed();
        loop {
            let completion = completions.next().await;
            match completion.kind {
                CompletionKind::Accepted { token, .. } => {
                    assert_eq!(completion.token, listener);
                    let connection = io.adopt(token);
                    drop(task::spawn(echo(io.clone(), connection)));
                }
                CompletionKind::Woken => count.set(count.get() + 1),
                other => panic!("{other:?}"),
            }
        }
    }));
    let address = handle.with(|io| io.local_addr(listener)).unwrap();
    let test = async move {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"bytes").await.unwrap();
        expect(&stream, b"bytes").await;
        handle.with(|io| io.waker().wake());
        while woken.get() == 0 {
            task::yield_now().await;
        }
    };
    executor.block_on(test).unwrap();
}

/// Checks that a task learns that its connection was closed by its token.
pub(crate) fn completions_end_with_a_closed_connection<I: Relay + 'static>(case: &Case<'_, I>) {
    let mut executor = executor(case);
    let handle = executor.io();
    let test = async move {
        let listener = TcpListener::bind(loopback()).unwrap();
        let (client, server) = crate::net::pair_of(&listener).await;
        let token = server.token();
        let driver = task::spawn(echo(handle.clone(), server.into_completions()));
        task::yield_now().await;
        handle.with(|io| io.close(token));
        handle.end(token);
        assert_eq!(driver.await.unwrap(), 0);
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    };
    executor.block_on(test).unwrap();
}

/// Checks completions that another task passes, and those that are left when the connection ends.
pub(crate) fn passed_completions_reach_their_task<I: Relay + 'static>(case: &Case<'_, I>) {
    let mut executor = executor(case);
    let handle = executor.io();
    let test = async move {
        let (client, server) = pair().await;
        let token = server.token();
        let connection = server.into_completions();
        let taken = Rc::new(Cell::new(0));
        let count = Rc::clone(&taken);
        let driver = task::spawn(async move {
            while let Some(kind) = connection.next().await {
                assert!(matches!(kind, CompletionKind::Woken), "{kind:?}");
                count.set(count.get() + 1);
            }
        });
        task::yield_now().await;
        for passed in 1..3 {
            handle.pass(token, CompletionKind::Woken);
            handle.pass(token, CompletionKind::Woken);
            task::yield_now().await;
            assert_eq!(taken.get(), 2 * passed);
        }
        handle.pass(token, CompletionKind::Woken);
        handle.end(token);
        driver.await.unwrap();
        assert_eq!(taken.get(), 4);
        // The connection is left to the caller.
        handle.with(|io| {
            assert!(io.socket(token).is_some() || io.peer_addr(token).is_ok());
            io.close(token);
        });
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    };
    executor.block_on(test).unwrap();
}

/// Checks turns whose parts the caller runs.
pub(crate) fn turns_run_in_parts<I: Relay + 'static>(case: &Case<'_, I>) {
    let mut executor = executor(case);
    let handle = executor.io();
    let mut unclaimed = handle.unclaimed();
    let (listener, address) = handle.with(|io| {
        let listener = io.listen(&loopback().into(), &ListenOptions::default()).unwrap();
        io.start(listener);
        (listener, io.local_addr(listener).unwrap())
    });
    let client = executor.spawn(async move {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"bytes").await.unwrap();
        expect(&stream, b"bytes").await;
    });
    let mut accepted = 0;
    while !client.is_finished() {
        let mut turn = executor.begin_turn(None, Io::wait).unwrap();
        while turn.run_next() {
            while let Some(completion) = unclaimed.take() {
                assert_eq!(completion.token, listener);
                let CompletionKind::Accepted { token, .. } = completion.kind else { panic!() };
                drop(task::spawn(echo(handle.clone(), handle.adopt(token))));
                assert!(turn.has_ready());
                accepted += 1;
            }
        }
        turn.finish();
    }
    assert_eq!(accepted, 1);
}

/// Checks that a task handles its completion before tasks that were ready earlier, which might change
/// the same connection.
pub(crate) fn completions_precede_ready_tasks<I: Relay + 'static>(case: &Case<'_, I>) {
    let mut executor = executor(case);
    let order = Rc::new(RefCell::new(Vec::new()));
    let (client, server) = executor.block_on(pair()).unwrap();
    let reader = executor.spawn({
        let order = Rc::clone(&order);
        async move {
            expect(&server, b"x").await;
            order.borrow_mut().push("completion");
        }
    });
    drop(executor.spawn(async move {
        client.write_all(b"x").await.unwrap();
        pending::<()>().await;
    }));
    while !reader.is_finished() {
        let mut turn = executor.begin_turn(None, Io::wait).unwrap();
        loop {
            order.borrow_mut().clear();
            let later = Rc::clone(&order);
            drop(task::spawn(async move { later.borrow_mut().push("ready") }));
            if !turn.run_next() {
                break;
            }
            if reader.is_finished() {
                assert_eq!(order.borrow().first(), Some(&"completion"));
            }
        }
        turn.finish();
    }
}
