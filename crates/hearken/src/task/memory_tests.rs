//! Tests of the executor's memory for Miri: `scripts/miri`. They also run as usual tests.

use std::cell::Cell;
use std::future::{pending, poll_fn};
use std::rc::Rc;
use std::sync::mpsc;
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use super::{Executor, TcpListener, TcpStream, bounded, sleep, spawn, timeout, yield_now};
use crate::io::sim::{Decisions, NetworkSettings, SimIo, SimIoSettings, World};
use crate::timer::Time;

fn executor() -> Executor<SimIo> {
    let world = World::new(Decisions::from_bytes(&[]), NetworkSettings::default());
    Executor::new(SimIo::new(&world.host([127, 0, 0, 1].into()), SimIoSettings::default()))
}

#[test]
fn tasks_end_in_every_way() {
    let mut executor = executor();
    let held = Rc::new(());
    let inner = Rc::clone(&held);
    executor
        .block_on(async move {
            let output = spawn({
                let inner = Rc::clone(&inner);
                async move { inner }
            });
            let detached = Rc::clone(&inner);
            drop(spawn(async move { detached }));
            let aborted = spawn({
                let inner = Rc::clone(&inner);
                async move {
                    let _inner = inner;
                    pending::<()>().await;
                }
            });
            let panics = spawn(async { std::panic::resume_unwind(Box::new("panic")) });
            yield_now().await;
            aborted.abort();
            drop(output.await.unwrap());
            assert!(aborted.await.is_err());
            let panics: Result<(), _> = panics.await;
            assert!(panics.unwrap_err().into_panic().is_some());
            let kept = spawn(async move { inner });
            yield_now().await;
            drop(kept);
        })
        .unwrap();
    assert_eq!(Rc::strong_count(&held), 1);
    let inner = Rc::clone(&held);
    let handle = executor.spawn(async move {
        let _inner = inner;
        loop {
            yield_now().await;
        }
    });
    executor.turn(Some(Time::from_nanos(0))).unwrap();
    drop(executor);
    assert_eq!(Rc::strong_count(&held), 1);
    drop(handle);
}

#[test]
fn aborts_of_queued_and_running_tasks() {
    let mut executor = executor();
    executor
        .block_on(async {
            // In each ready queue: new, woken, and woken by itself.
            let new = spawn(pending::<()>());
            new.abort();
            assert!(new.await.is_err());
            let spins = spawn(async {
                loop {
                    yield_now().await;
                }
            });
            yield_now().await;
            spins.abort();
            yield_now().await;
            assert!(spins.await.is_err());
            // A task that wakes and aborts itself in its last poll.
            let own = Rc::new(Cell::new(None::<super::JoinHandle<()>>));
            let inner = Rc::clone(&own);
            own.set(Some(spawn(poll_fn(move |context| {
                if let Some(handle) = inner.take() {
                    handle.abort();
                    context.waker().wake_by_ref();
                }
                Poll::Pending
            }))));
            yield_now().await;
            yield_now().await;
        })
        .unwrap();
    drop(executor.spawn(pending::<()>()));
    assert_eq!(executor.shut_down(Duration::ZERO).unwrap(), 1);
    assert_eq!(executor.block_on(async { 5 }).unwrap(), 5);
}

#[test]
fn streams_timers_and_channels() {
    let mut executor = executor();
    executor
        .block_on(async {
            let listener = TcpListener::bind(([127, 0, 0, 1], 80).into()).unwrap();
            let (sender, mut receiver) = bounded(1);
            drop(spawn(async move {
                let stream = listener.accept().await.unwrap();
                loop {
                    let receiving = timeout(Duration::from_micros(10), stream.receive());
                    let Ok(bytes) = receiving.await else { continue };
                    let bytes = bytes.unwrap();
                    if bytes.is_empty() {
                        break;
                    }
                    stream.send(bytes.into()).await.unwrap();
                    sender.send(1).await.unwrap();
                }
            }));
            let stream = TcpStream::connect(([127, 0, 0, 1], 80).into()).await.unwrap();
            let mut buffer = [0; 4];
            for _ in 0..3 {
                stream.write_all(b"1234").await.unwrap();
                while stream.read(&mut buffer).await.unwrap() < 4 {}
                assert_eq!(receiver.receive().await, Some(1));
                sleep(Duration::from_millis(1)).await;
            }
            drop(stream);
            assert_eq!(receiver.receive().await, None);
        })
        .unwrap();
}

// The name selects it for many schedules of Miri.
#[test]
fn waker_is_shared_with_other_threads() {
    let mut executor = executor();
    let (sender, receiver) = mpsc::channel::<Waker>();
    let woken = Rc::new(Cell::new(0));
    let count = Rc::clone(&woken);
    let handle = executor.spawn(poll_fn(move |context| {
        count.set(count.get() + 1);
        sender.send(context.waker().clone()).unwrap();
        if count.get() == 3 { Poll::Ready(count.get()) } else { Poll::Pending }
    }));
    let other = thread::spawn(move || {
        while let Ok(waker) = receiver.recv() {
            let clone = waker.clone();
            waker.wake();
            clone.wake_by_ref();
        }
    });
    assert_eq!(executor.block_on(handle).unwrap().unwrap(), 3);
    // The last wakers may live longer than the executor.
    drop(executor);
    other.join().unwrap();
    assert_eq!(woken.get(), 3);
}
