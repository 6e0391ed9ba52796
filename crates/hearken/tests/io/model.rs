//! Random scripts between two instances: streams are preserved.

use std::time::{Duration, Instant};

use bytes::Bytes;
use hearken::Token;
use hearken::io::{Body, Io};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::Case;
use crate::net::{Net, PATIENCE, between, file, part, pattern};
use crate::suite;

/// A step of one side.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Sends a head, and a body of bytes or of a file.
    Send {
        head: usize,
        body: usize,
        file: bool,
    },
    Stop,
    Start,
    /// Shuts down after all sends have completed.
    HalfClose,
    /// Runs a turn, or takes some of its completions.
    Turn(Option<usize>),
}

fn step() -> impl Strategy<Value = Step> {
    let length = || prop_oneof![Just(0), 1..200_usize, 1..40_000_usize];
    prop_oneof![
        4 => (length(), length(), any::<bool>()).prop_map(|(head, body, file)| Step::Send { head, body, file }),
        2 => Just(Step::Stop),
        2 => Just(Step::Start),
        1 => Just(Step::HalfClose),
        4 => Just(Step::Turn(None)),
        4 => (1..5_usize).prop_map(|count| Step::Turn(Some(count))),
    ]
}

/// One side of the connection.
struct Side<I: Io> {
    net: Net<I>,
    token: Token,
    /// All sent bytes.
    bytes: Vec<u8>,
    /// Number of sends.
    sends: usize,
    closing: bool,
    closed: bool,
}

impl<I: Io> Side<I> {
    fn new(net: Net<I>, token: Token) -> Side<I> {
        Side { net, token, bytes: Vec::new(), sends: 0, closing: false, closed: false }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Send { .. } if self.closing => {}
            Step::Send { head, body: body_len, file: from_file } => {
                let bytes = pattern(self.sends as u64, head + body_len);
                let body = if from_file {
                    part(&file(&bytes), head as u64, body_len as u64)
                } else {
                    Body::Bytes(Bytes::copy_from_slice(&bytes[head..]))
                };
                if body_len == 0 && !from_file {
                    self.net.send_now(self.token, &bytes);
                } else {
                    self.net.send_with(self.token, &bytes[..head], body);
                }
                self.bytes.extend_from_slice(&bytes);
                self.sends += 1;
            }
            Step::Stop => self.net.io.stop(self.token),
            Step::Start => self.net.io.start(self.token),
            Step::HalfClose => self.closing = true,
            Step::Turn(None) => {
                self.net.turn(Duration::ZERO);
            }
            Step::Turn(Some(count)) => {
                self.net.wait(Duration::ZERO);
                for _ in 0..count {
                    self.net.next();
                }
            }
        }
        let sent = self.net.seen(self.token).sent.len();
        if self.closing && !self.closed && sent == self.sends {
            self.net.io.shutdown(self.token);
            self.closed = true;
        }
    }
}

/// Checks that all bytes are received in order, followed by the end, for any sequence of sends,
/// stops, starts, half-closes and abandoned turns.
pub(crate) fn any_script_preserves_the_stream<I: Io>(case: &Case<'_, I>) {
    let config = Config { max_shrink_time: 20_000, ..suite::property(12) };
    let script = vec((any::<bool>(), step()), 1..40);
    let tested = TestRunner::new(config).run(&script, |script| {
        let (mut a, mut b) = (Net::new(case), Net::new(case));
        let (from, to) = between(&mut a, &mut b);
        let mut sides = [Side::new(a, from), Side::new(b, to)];
        for (side, step) in script {
            sides[usize::from(side)].take(step);
        }
        let began = Instant::now();
        for side in &mut sides {
            side.take(Step::Start);
            side.take(Step::HalfClose);
        }
        while !sides.iter_mut().all(|side| side.net.seen(side.token).ended) {
            for side in &mut sides {
                side.take(Step::Turn(None));
            }
            prop_assert!(began.elapsed() < PATIENCE, "the streams do not end");
        }
        for index in 0..2 {
            let [from, to] = sides.each_mut();
            let (from, to) = if index == 0 { (from, to) } else { (to, from) };
            prop_assert!(to.net.seen(to.token).received == from.bytes, "the received bytes differ");
            prop_assert_eq!(&from.net.seen(from.token).sent, &vec![Ok(()); from.sends]);
            prop_assert_eq!(from.net.io.pool().in_use(), 0);
        }
        Ok(())
    });
    if let Err(failure) = tested {
        panic!("{failure}");
    }
}
