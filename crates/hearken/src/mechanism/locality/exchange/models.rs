//! Models of the hand-over between the two threads, checked by loom: `scripts/loom`.

use std::sync::Arc;

use loom::thread;

use super::*;

/// The only descriptor.
const FD: u32 = 7;

/// The two threads of a mechanism, and the kernel.
struct Model {
    exchange: Exchange<Vec<u32>, u32>,
    kernel: Mutex<Kernel>,
    changed: Condvar,
}

#[derive(Default)]
struct Kernel {
    /// Whether the descriptor is ready.
    ready: bool,
    closed: bool,
    /// Whether the helper's socket is readable.
    woken: bool,
    /// Whether the waiting thread's socket is readable.
    notified: bool,
}

impl Model {
    fn start() -> (Arc<Model>, thread::JoinHandle<()>) {
        let model = Arc::new(Model {
            exchange: Exchange::new(),
            kernel: Mutex::new(Kernel::default()),
            changed: Condvar::new(),
        });
        let helper = Arc::clone(&model);
        let thread = thread::spawn(move || helper.run());
        (model, thread)
    }

    fn change(&self, change: impl FnOnce(&mut Kernel)) {
        change(&mut self.kernel.lock().unwrap());
        self.changed.notify_all();
    }

    /// Polls `list` and the helper's socket.
    fn poll(&self, list: &mut Vec<u32>, sleeps: bool) -> Vec<u32> {
        let mut kernel = self.kernel.lock().unwrap();
        loop {
            assert!(list.is_empty() || !kernel.closed, "a closed descriptor is used");
            let found = if kernel.ready { std::mem::take(list) } else { Vec::new() };
            let woken = std::mem::take(&mut kernel.woken);
            if woken || !sleeps || !found.is_empty() {
                return found;
            }
            kernel = self.changed.wait(kernel).unwrap();
        }
    }

    /// Runs the helper, without pauses.
    fn run(&self) {
        let mut list = Vec::new();
        loop {
            let mut demoted = Vec::new();
            let Some((taken, turn)) = self.exchange.begin(list, &mut demoted) else { return };
            list = taken;
            list.append(&mut demoted);
            let mut found = self.poll(&mut list, turn.sleeps);
            if self.exchange.end(&turn, Ok(&mut found), 0).notifies {
                self.change(|kernel| kernel.notified = true);
            }
        }
    }

    fn wake(&self) {
        self.change(|kernel| kernel.woken = true);
    }

    /// Lets the helper run, and passes the descriptor to it.
    fn demote(&self) {
        let Held { list, .. } = self.exchange.hold(|| self.wake());
        self.exchange.release(list);
        if self.exchange.demote(&mut vec![FD]) {
            self.wake();
        }
    }

    fn await_notification(&self) {
        let mut kernel = self.kernel.lock().unwrap();
        while !kernel.notified {
            kernel = self.changed.wait(kernel).unwrap();
        }
    }

    fn stop(&self, helper: thread::JoinHandle<()>) {
        self.exchange.stop();
        self.wake();
        helper.join().unwrap();
    }
}

// A descriptor that becomes ready at any time, even before the helper has it, is found.
#[test]
fn a_demoted_descriptor_is_found() {
    loom::model(|| {
        let (model, helper) = Model::start();
        let peer = Arc::clone(&model);
        let peer = thread::spawn(move || peer.change(|kernel| kernel.ready = true));
        model.demote();
        model.await_notification();
        assert_eq!(model.exchange.take_found().unwrap(), [FD]);
        peer.join().unwrap();
        model.stop(helper);
    });
}

// A descriptor that the waiting thread takes back is in one place, and the helper does not use it
// after it is closed.
#[test]
fn a_held_helper_uses_no_descriptor() {
    loom::model(|| {
        let (model, helper) = Model::start();
        model.demote();
        model.change(|kernel| kernel.ready = true);
        let Held { mut list, mut demoted, mut found } = model.exchange.hold(|| model.wake());
        list.append(&mut demoted);
        list.append(&mut found);
        assert_eq!(list, [FD]);
        model.change(|kernel| kernel.closed = true);
        model.exchange.release(Vec::new());
        model.stop(helper);
        assert!(model.exchange.take_found().unwrap().is_empty());
    });
}

// A requested poll finds a descriptor that was ready before the request.
#[test]
fn a_requested_poll_is_complete() {
    loom::model(|| {
        let (model, helper) = Model::start();
        model.demote();
        model.change(|kernel| kernel.ready = true);
        model.exchange.request_poll();
        model.wake();
        model.exchange.await_poll();
        assert_eq!(model.exchange.take_found().unwrap(), [FD]);
        model.stop(helper);
    });
}
