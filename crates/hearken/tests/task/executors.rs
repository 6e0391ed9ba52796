//! Tasks and their executor.

use std::cell::{Cell, RefCell};
use std::future::{Future, pending, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use futures_channel::{mpsc, oneshot};
use hearken::io::Relay;
use hearken::task::{self, Stopping, TcpListener, TcpStream};

use crate::Case;
use crate::net::{executor, expect, loopback, pair, run};

/// Counts its drops.
struct Dropped(Rc<Cell<usize>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

/// Checks outputs, of tasks that end before and after their handle is polled.
pub(crate) fn outputs_reach_handles<I: Relay + 'static>(case: &Case<'_, I>) {
    run(case, async {
        let early = task::spawn(async { "early".to_owned() });
        let late = task::spawn(async {
            task::yield_now().await;
            "late".to_owned()
        });
        assert_eq!(late.await.unwrap(), "late");
        assert!(early.is_finished());
        assert_eq!(early.await.unwrap(), "early");
        let drops = Rc::new(Cell::new(0));
        // An output without a handle is dropped, and so is one whose handle is dropped.
        let counted = Dropped(Rc::clone(&drops));
        drop(task::spawn(async { counted }));
        let counted = Dropped(Rc::clone(&drops));
        let handle = task::spawn(async { counted });
        task::yield_now().await;
        task::yield_now().await;
        assert_eq!(drops.get(), 1);
        drop(handle);
        assert_eq!(drops.get(), 2);
    });
}

/// Checks that other tasks do not notice a panic, and that the panicking task's streams close.
pub(crate) fn panic_ends_only_its_task<I: Relay + 'static>(case: &Case<'_, I>) {
    run(case, async {
        let (client, server) = pair().await;
        let handle = task::spawn(async move {
            server.receive().await.unwrap();
            // Without the hook, whose output would look like a failure.
            std::panic::resume_unwind(Box::new("this task fails"));
        });
        client.write_all(b"bytes").await.unwrap();
        let error = handle.await.unwrap_err();
        assert!(!error.is_cancelled());
        assert_eq!(error.to_string(), "the task panicked: this task fails");
        assert!(client.receive().await.map_or(true, |bytes| bytes.is_empty()));
        /// Panics when it is dropped.
        struct PanicsOnDrop;
        impl Drop for PanicsOnDrop {
            fn drop(&mut self) {
                std::panic::resume_unwind(Box::new("drop"));
            }
        }
        let guard = PanicsOnDrop;
        let handle = task::spawn(async move {
            let _guard = guard;
            pending::<()>().await;
        });
        task::yield_now().await;
        handle.abort();
        assert!(handle.await.is_err());
    });
}

/// Checks that an abort drops the future in each state of its task.
pub(crate) fn aborted_task_is_dropped<I: Relay + 'static>(case: &Case<'_, I>) {
    run(case, async {
        let drops = Rc::new(Cell::new(0));
        for waits in [0, 1, 3] {
            let counted = Dropped(Rc::clone(&drops));
            let handle = task::spawn(async move {
                let _counted = counted;
                task::yield_now().await;
                pending::<()>().await;
            });
            for _ in 0..waits {
                task::yield_now().await;
            }
            handle.abort();
            handle.abort();
            assert!(handle.await.unwrap_err().is_cancelled());
        }
        assert_eq!(drops.get(), 3);
        // A task that aborts itself ends with this poll.
        let own = Rc::new(RefCell::new(None::<task::JoinHandle<()>>));
        let inner = Rc::clone(&own);
        *own.borrow_mut() = Some(task::spawn(async move {
            if let Some(handle) = &*inner.borrow() {
                handle.abort();
            }
            pending::<()>().await;
        }));
        let handle = poll_fn(|_| Poll::Ready(own.borrow_mut().take())).await;
        task::yield_now().await;
        drop(handle);
        let done = task::spawn(async { 5 });
        task::yield_now().await;
        task::yield_now().await;
        done.abort();
        assert_eq!(done.await.unwrap(), 5);
    });
}

/// Checks that an executor drops waiting, ready and new tasks, and what they spawn when dropped.
pub(crate) fn dropping_an_executor_drops_tasks<I: Relay + 'static>(case: &Case<'_, I>) {
    /// Starts a task when it is dropped.
    struct SpawnsOnDrop(Rc<Cell<usize>>);
    impl Drop for SpawnsOnDrop {
        fn drop(&mut self) {
            let counted = Dropped(Rc::clone(&self.0));
            drop(task::spawn(async move { drop(counted) }));
        }
    }
    let drops = Rc::new(Cell::new(0));
    let mut executor = executor(case);
    let mut handles = Vec::new();
    for kind in 0..3 {
        let counted = Dropped(Rc::clone(&drops));
        let spawns = SpawnsOnDrop(Rc::clone(&drops));
        handles.push(executor.spawn(async move {
            let (_counted, _spawns) = (counted, spawns);
            let listener = TcpListener::bind(loopback()).unwrap();
            match kind {
                0 => drop(listener.accept().await),
                1 => loop {
                    task::yield_now().await;
                },
                _ => pending::<()>().await,
            }
        }));
    }
    for _ in 0..4 {
        executor.turn(Some(hearken::timer::Time::from_nanos(0))).unwrap();
    }
    let counted = Dropped(Rc::clone(&drops));
    drop(executor.spawn(async move { drop(counted) }));
    assert_eq!(executor.task_count(), 4);
    drop(executor);
    assert_eq!(drops.get(), 7);
    for handle in handles {
        assert!(handle.is_finished());
        handle.abort();
    }
}

/// Checks that events are handled while a task never waits.
pub(crate) fn spinning_task_does_not_starve_others<I: Relay + 'static>(case: &Case<'_, I>) {
    run(case, async {
        let spinning = task::spawn(async {
            loop {
                task::yield_now().await;
            }
        });
        let (client, server) = pair().await;
        for _ in 0..10 {
            client.write_all(b"bytes").await.unwrap();
            expect(&server, b"bytes").await;
        }
        task::sleep(Duration::from_millis(1)).await;
        spinning.abort();
    });
}

/// Checks that events are handled while two tasks wake each other all the time.
pub(crate) fn tasks_that_wake_each_other_do_not_starve_others<I: Relay + 'static>(
    case: &Case<'_, I>,
) {
    run(case, async {
        let (to_second, mut from_first) = task::bounded::<u32>(1);
        let (to_first, mut from_second) = task::bounded::<u32>(1);
        let first = task::spawn(async move {
            while let Some(number) = from_second.receive().await {
                to_second.send(number + 1).await.unwrap();
            }
        });
        let second = task::spawn(async move {
            to_first.send(0).await.unwrap();
            while let Some(number) = from_first.receive().await {
                to_first.send(number + 1).await.unwrap();
            }
        });
        let (client, server) = pair().await;
        for _ in 0..10 {
            client.write_all(b"bytes").await.unwrap();
            expect(&server, b"bytes").await;
        }
        task::sleep(Duration::from_millis(1)).await;
        assert!(!first.is_finished() && !second.is_finished());
        first.abort();
        second.abort();
    });
}

/// Checks values and wake-ups from other threads, and wakers that outlive their task there.
pub(crate) fn wakers_work_on_other_threads<I: Relay + 'static>(case: &Case<'_, I>) {
    // Virtual time passes at once, so this test has no time limit.
    executor(case)
        .block_on(async {
            let (mut sender, mut receiver) = mpsc::channel::<usize>(2);
            let threads = thread::spawn(move || {
                for number in 0..200 {
                    while sender.try_send(number).is_err() {
                        thread::yield_now();
                    }
                }
            });
            let mut receive =
                async || poll_fn(|cx| futures_stream_next(Pin::new(&mut receiver), cx)).await;
            for number in 0..200 {
                assert_eq!(receive().await, Some(number));
            }
            assert_eq!(receive().await, None);
            threads.join().unwrap();
            // Many tasks at once.
            let mut handles = Vec::new();
            for number in 0..50 {
                let (sender, receiver) = oneshot::channel();
                handles.push(task::spawn(async move { receiver.await.unwrap() }));
                drop(thread::spawn(move || sender.send(number).unwrap()));
            }
            for (number, handle) in handles.into_iter().enumerate() {
                assert_eq!(handle.await.unwrap(), number);
            }
        })
        .unwrap();
    let mut executor = executor(case);
    let (sender, receiver) = std::sync::mpsc::channel();
    drop(executor.spawn(poll_fn(move |context| {
        sender.send(context.waker().clone()).unwrap();
        Poll::<()>::Pending
    })));
    executor.turn(None).unwrap();
    drop(executor);
    let waker = receiver.recv().unwrap();
    thread::spawn(move || {
        waker.wake_by_ref();
        drop(waker.clone());
        waker.wake();
    })
    .join()
    .unwrap();
}

/// Polls the next value of a channel of futures-channel.
fn futures_stream_next<T>(
    mut receiver: Pin<&mut mpsc::Receiver<T>>,
    context: &mut std::task::Context<'_>,
) -> Poll<Option<T>> {
    let mut next = std::pin::pin!(receiver.recv());
    next.as_mut().poll(context).map(Result::ok)
}

/// Checks that another thread stops the accepting, and that connections continue.
pub(crate) fn stop_ends_listeners<I: Relay + 'static>(case: &Case<'_, I>) {
    let mut executor = executor(case);
    let stopper = executor.stopper();
    let served = Rc::new(Cell::new(0));
    let count = Rc::clone(&served);
    let server = executor.spawn(async move {
        let listener = TcpListener::bind(loopback()).unwrap();
        drop(task::spawn(client(listener.local_addr().unwrap(), stopper)));
        loop {
            let stream = match listener.accept().await {
                Ok(stream) => stream,
                Err(error) => {
                    let inner = error.get_ref().unwrap();
                    assert!(inner.is::<Stopping>(), "{error}");
                    return task::stopped().await;
                }
            };
            let count = Rc::clone(&count);
            drop(task::spawn(async move {
                task::stopped().await;
                stream.write_all(b"bytes").await.unwrap();
                count.set(count.get() + 1);
            }));
        }
    });
    async fn client(address: SocketAddr, stopper: task::Stopper) {
        let stream = TcpStream::connect(address).await.unwrap();
        thread::spawn(move || stopper.stop());
        expect(&stream, b"bytes").await;
    }
    executor.run().unwrap();
    assert!(server.is_finished());
    assert_eq!(served.get(), 1);
}

/// Checks that a shutdown waits for tasks for a limited time.
pub(crate) fn shut_down_drops_tasks_after_its_grace<I: Relay + 'static>(case: &Case<'_, I>) {
    let mut executor = executor(case);
    let drops = Rc::new(Cell::new(0));
    let (counted, slow) = (Dropped(Rc::clone(&drops)), Dropped(Rc::clone(&drops)));
    drop(executor.spawn(async move {
        let _counted = counted;
        task::sleep(Duration::from_millis(2)).await;
    }));
    let handle = executor.spawn(async move {
        let _slow = slow;
        task::sleep(Duration::from_secs(3600)).await;
    });
    assert_eq!(executor.shut_down(Duration::from_millis(20)).unwrap(), 1);
    assert_eq!(drops.get(), 2);
    assert!(handle.is_finished());
    assert_eq!(executor.task_count(), 0);
    // It can still run tasks.
    assert_eq!(executor.block_on(async { 5 }).unwrap(), 5);
}
