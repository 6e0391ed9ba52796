//! Sleeps and timeouts.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use hearken::io::Relay;
use hearken::task::{self, Elapsed};

use crate::Case;
use crate::net::run;

/// Checks that tasks wake in the order of their deadlines.
pub(crate) fn sleeps_end_in_order_and_never_early<I: Relay + 'static>(case: &Case<'_, I>) {
    run(case, async {
        let order = Rc::new(RefCell::new(Vec::new()));
        let start = task::now();
        let tasks: Vec<_> = [9_u64, 3, 6]
            .map(|millis| {
                let order = Rc::clone(&order);
                task::spawn(async move {
                    let duration = Duration::from_millis(millis);
                    task::sleep_until(start + duration).await;
                    assert!(task::now() >= start + duration);
                    order.borrow_mut().push(millis);
                })
            })
            .into();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.borrow(), [3, 6, 9]);
        task::sleep_until(start).await;
        task::sleep(Duration::ZERO).await;
    });
}

/// Checks that a future is dropped when its time is up, and not before it is ready.
pub(crate) fn timeout_drops_its_future<I: Relay + 'static>(case: &Case<'_, I>) {
    run(case, async {
        let held = Rc::new(());
        let inner = Rc::clone(&held);
        let waiting = task::timeout(Duration::from_millis(2), async move {
            let _inner = inner;
            std::future::pending::<()>().await;
        });
        assert_eq!(waiting.await, Err(Elapsed));
        assert_eq!(Rc::strong_count(&held), 1);
        let in_time = task::timeout(Duration::from_secs(3600), task::sleep(Duration::ZERO));
        assert_eq!(in_time.await, Ok(()));
        let nested = task::timeout(Duration::from_millis(1), task::sleep(Duration::from_secs(9)));
        let outer = task::timeout(Duration::from_secs(3600), nested);
        assert_eq!(outer.await, Ok(Err(Elapsed)));
    });
}

/// Checks that a sleep can be moved in both directions, also after it ended.
pub(crate) fn moved_sleeps_end_at_their_new_time<I: Relay + 'static>(case: &Case<'_, I>) {
    run(case, async {
        let start = task::now();
        let mut sleep = task::sleep(Duration::from_secs(3600));
        sleep.reset(start + Duration::from_millis(2));
        (&mut sleep).await;
        assert!(task::now() < start + Duration::from_secs(600));
        let end = task::now() + Duration::from_millis(3);
        sleep.reset(end);
        assert_eq!(sleep.deadline(), end);
        sleep.await;
        assert!(task::now() >= end);
    });
}
