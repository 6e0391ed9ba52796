//! Channels between tasks.

use std::rc::Rc;

use hearken::io::sim::{Decisions, NetworkSettings, SimIo, SimIoSettings, World};
use hearken::task::{self, Executor, SendError, TrySendError, bounded, oneshot};

use crate::net::poll_once;
use crate::suite::{Tests, tests};

/// Returns the tests of this module.
pub(crate) fn tests() -> Tests {
    tests! {
        values_arrive_in_order
        waiting_senders_are_served_in_order
        dropped_sender_passes_its_place_on
        dropped_sides_are_reported
        oneshot_yields_its_value_or_none
    }
}

fn run<F: Future + 'static>(future: F) -> F::Output {
    let world = World::new(Decisions::from_bytes(&[]), NetworkSettings::default());
    let io = SimIo::new(&world.host([127, 0, 0, 1].into()), SimIoSettings::default());
    Executor::new(io).block_on(future).unwrap()
}

fn values_arrive_in_order() {
    run(async {
        let (sender, mut receiver) = bounded(3);
        let other = sender.clone();
        drop(task::spawn(async move {
            for number in 0..100 {
                sender.send(number).await.unwrap();
            }
            drop(sender);
        }));
        for number in 0..100 {
            assert_eq!(receiver.receive().await, Some(number));
        }
        assert!(poll_once(receiver.receive()).await.is_none());
        drop(other);
        assert_eq!(receiver.receive().await, None);
    });
}

fn waiting_senders_are_served_in_order() {
    run(async {
        let (sender, mut receiver) = bounded(1);
        for number in 0..5 {
            let sender = sender.clone();
            drop(task::spawn(async move { sender.send(number).await.unwrap() }));
        }
        task::yield_now().await;
        task::yield_now().await;
        // There is no space, even between a receive and the waiting sender.
        assert_eq!(sender.try_send(9), Err(TrySendError::Full(9)));
        for number in 0..5 {
            assert_eq!(receiver.receive().await, Some(number));
            if number < 4 {
                assert_eq!(sender.try_send(9), Err(TrySendError::Full(9)));
            }
        }
        assert_eq!(sender.try_send(9), Ok(()));
    });
}

fn dropped_sender_passes_its_place_on() {
    run(async {
        let (sender, mut receiver) = bounded(1);
        sender.send(0).await.unwrap();
        let [first, second] = [1, 2].map(|number| {
            let sender = sender.clone();
            task::spawn(async move { sender.send(number).await })
        });
        task::yield_now().await;
        task::yield_now().await;
        first.abort();
        assert_eq!(receiver.receive().await, Some(0));
        assert_eq!(receiver.receive().await, Some(2));
        assert!(first.await.unwrap_err().is_cancelled());
        assert_eq!(second.await.unwrap(), Ok(()));
    });
}

fn dropped_sides_are_reported() {
    run(async {
        let (sender, receiver) = bounded(1);
        let held = Rc::new(());
        sender.send(Rc::clone(&held)).await.unwrap();
        let other = sender.clone();
        let value = Rc::clone(&held);
        let waiting = task::spawn(async move { other.send(value).await });
        task::yield_now().await;
        drop(receiver);
        let error = waiting.await.unwrap().unwrap_err();
        assert_eq!(error.to_string(), "the receiver of the channel was dropped");
        drop(error);
        assert_eq!(Rc::strong_count(&held), 1);
        assert!(matches!(sender.try_send(held), Err(TrySendError::Closed(_))));
    });
}

fn oneshot_yields_its_value_or_none() {
    run(async {
        let (sender, receiver) = oneshot();
        let waiting = task::spawn(receiver);
        task::yield_now().await;
        sender.send(5).unwrap();
        assert_eq!(waiting.await.unwrap(), Some(5));
        let (sender, receiver) = oneshot::<u32>();
        drop(sender);
        assert_eq!(receiver.await, None);
        let (sender, receiver) = oneshot();
        drop(receiver);
        assert_eq!(sender.send(7), Err(SendError(7)));
    });
}
