//! The implementation of `Io` under the programs under test: by the contract alone, or over a
//! simulated kernel or ring.

use std::time::Duration;

use hearken::Readiness;
use hearken::io::Relay;
use hearken::io::readiness::{ClosePolicy, InterestPolicy, Order, Policy};
use hearken::io::sim::{Decisions, KernelFaults, MechanismSettings, RingFaults};
use hearken::io::sim::{SimIo, SimIoSettings, readiness, uring};
use hearken::io::uring::{SendsBy, Settings};
use hearken::mechanism::{ChangeCost, Trigger, Watches};
use hearken::timer::TimerPolicy;

use crate::scheduler::Program;
use crate::swarm::{FaultLevel, draw, probability};

/// The implementation of `Io` under the programs under test, with its settings and faults.
#[derive(Clone, Copy, Debug)]
pub enum IoLevel {
    /// [`SimIo`], which simulates the contract.
    Io(SimIoSettings),
    /// `ReadinessIo` over a simulated mechanism and kernel.
    Kernel(MechanismSettings, KernelFaults, Policy),
    /// `UringIo` over a simulated ring and kernel.
    Ring(Settings, RingFaults),
}

/// The name of an [`IoLevel`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoLevelName {
    /// [`IoLevel::Io`].
    Io,
    /// [`IoLevel::Kernel`].
    Kernel,
    /// [`IoLevel::Ring`].
    Ring,
}

impl IoLevelName {
    /// All names, each with its text on the command line.
    pub const ALL: [(&str, IoLevelName); 3] =
        [("io", IoLevelName::Io), ("kernel", IoLevelName::Kernel), ("ring", IoLevelName::Ring)];

    /// The name for each value of the first decision of a history. Half of the histories use
    /// [`SimIo`], which is the fastest.
    const DRAWN: [IoLevelName; 4] =
        [IoLevelName::Io, IoLevelName::Io, IoLevelName::Kernel, IoLevelName::Ring];

    /// Returns the name for a value of the first decision below 4.
    pub(crate) fn of_value(value: u8) -> IoLevelName {
        IoLevelName::DRAWN[usize::from(value) % IoLevelName::DRAWN.len()]
    }

    /// Returns the first value that stands for this name.
    pub(crate) fn value(self) -> u8 {
        match self {
            IoLevelName::Io => 0,
            IoLevelName::Kernel => 2,
            IoLevelName::Ring => 3,
        }
    }
}

/// A program that runs over any `Io`.
pub trait OverIo {
    /// The result of the program.
    type Output;

    /// Runs the program.
    fn run<I: Relay + 'static>(self, io: I) -> Self::Output;
}

/// Directions, without the end of the stream.
const DIRECTIONS: Readiness = Readiness::READABLE.union(Readiness::WRITABLE);

impl IoLevel {
    /// Draws the settings and faults. `io` contains the sizes, which apply at every level.
    pub(crate) fn draw(
        name: IoLevelName,
        decisions: &mut Decisions,
        level: FaultLevel,
        io: SimIoSettings,
    ) -> IoLevel {
        match name {
            IoLevelName::Io => IoLevel::Io(io),
            IoLevelName::Kernel => {
                let mechanism = draw_mechanism(decisions, level);
                let is_edge = mechanism.semantics.trigger == Trigger::Edge;
                let faults = draw_kernel(decisions, level);
                IoLevel::Kernel(mechanism, faults, draw_policy(decisions, &io, is_edge))
            }
            IoLevelName::Ring => {
                let settings = draw_ring_settings(decisions, &io);
                let mut faults = draw_ring(decisions, level);
                faults.kernel = draw_kernel(decisions, level);
                IoLevel::Ring(settings, faults)
            }
        }
    }

    /// Returns the name.
    pub fn name(&self) -> IoLevelName {
        match self {
            IoLevel::Io(_) => IoLevelName::Io,
            IoLevel::Kernel(..) => IoLevelName::Kernel,
            IoLevel::Ring(..) => IoLevelName::Ring,
        }
    }

    /// Returns the maximum time for which a mechanism that scans hides an event of a quiet socket.
    pub fn latency(&self) -> Duration {
        match self {
            IoLevel::Kernel(mechanism, ..) if mechanism.scan_interval > 1 => {
                Duration::from_millis(4)
            }
            _ => Duration::ZERO,
        }
    }

    /// Runs a program over the implementation.
    ///
    /// # Panics
    /// Panics if the simulated kernel refuses to create the implementation, which is a bug.
    pub fn run<P: OverIo>(&self, of: Program<'_>, program: P) -> P::Output {
        match *self {
            IoLevel::Io(settings) => program.run(of.io(SimIo::new(of.host(), settings))),
            IoLevel::Kernel(mechanism, faults, policy) => {
                let io = readiness(of.host(), mechanism, faults, policy);
                program.run(of.io(io.expect("a simulated mechanism is available")))
            }
            IoLevel::Ring(settings, faults) => {
                let io = uring(of.host(), settings, faults);
                program.run(of.ring_io(io.expect("a simulated ring is available")))
            }
        }
    }
}

fn draw_mechanism(decisions: &mut Decisions, level: FaultLevel) -> MechanismSettings {
    let mut settings = MechanismSettings::default();
    let semantics = &mut settings.semantics;
    semantics.trigger = draw(decisions, &[Trigger::Level, Trigger::Edge, Trigger::OneShot]);
    // Over other mechanisms, each writable connection ends each wait: millions of them while it is idle.
    semantics.registers_both =
        semantics.trigger == Trigger::Edge && draw(decisions, &[false, false, true]);
    if draw(decisions, &[false, false, true]) {
        semantics.reports = DIRECTIONS;
    }
    match semantics.trigger {
        Trigger::Level => settings.scan_interval = draw(decisions, &[1, 1, 25]),
        trigger => {
            if trigger == Trigger::OneShot {
                semantics.change = ChangeCost::Wait;
            }
            if draw(decisions, &[false, true]) {
                semantics.watches = Watches::SignalDriven;
            }
            semantics.overflows = draw(decisions, &[false, true]);
            settings.queue_length = draw(decisions, &[1024, 2]);
        }
    }
    if level >= FaultLevel::Harmless {
        for fault in [
            &mut settings.short_batches,
            &mut settings.reordering,
            &mut settings.early_waits,
            &mut settings.spurious_events,
            &mut settings.excess,
            &mut settings.repetitions,
            &mut settings.overflows,
        ] {
            *fault = probability(decisions);
        }
    }
    if level >= FaultLevel::Any {
        settings.declaration_failures = probability(decisions);
    }
    settings
}

fn draw_kernel(decisions: &mut Decisions, level: FaultLevel) -> KernelFaults {
    let mut faults = KernelFaults::default();
    if level >= FaultLevel::Harmless {
        for fault in [
            &mut faults.interrupts,
            &mut faults.slow_calls,
            &mut faults.late_arrivals,
            &mut faults.stalled_receives,
            &mut faults.short_splices,
            &mut faults.refused_splices,
            &mut faults.pipe_failures,
        ] {
            *fault = probability(decisions);
        }
    }
    if level >= FaultLevel::Any {
        for fault in [
            &mut faults.aborted_accepts,
            &mut faults.accept_failures,
            &mut faults.transfer_failures,
        ] {
            *fault = probability(decisions);
        }
    }
    faults
}

fn draw_policy(decisions: &mut Decisions, io: &SimIoSettings, is_edge: bool) -> Policy {
    use InterestPolicy::{EveryState, Once, WhenNeeded};
    let mut policy = Policy::default();
    policy.order = draw(decisions, &[Order::TryFirst, Order::WaitFirst, Order::WaitToReceive]);
    // As for mechanisms that register both directions.
    policy.interest =
        draw(decisions, &[WhenNeeded, EveryState, if is_edge { Once } else { WhenNeeded }]);
    policy.accept_limit = draw(decisions, &[64, 1, 0]).try_into().ok();
    policy.turn_time = Duration::from_nanos(draw(decisions, &[1_000_000, 0, 1]));
    policy.batch = draw(decisions, &[512, 1, 3]);
    policy.close = draw(decisions, &[ClosePolicy::Implicit, ClosePolicy::Explicit]);
    policy.cork = draw(decisions, &[false, true]);
    policy.timers = draw(decisions, &[TimerPolicy::Wheel, TimerPolicy::Scan]);
    (policy.turn_bytes, policy.buffers) = (io.turn_bytes, io.buffers);
    policy.buffer_size = io.buffer_size;
    policy
}

fn draw_ring_settings(decisions: &mut Decisions, io: &SimIoSettings) -> Settings {
    let mut settings = Settings::default();
    settings.sends = draw(decisions, &[SendsBy::Calls, SendsBy::Ring]);
    settings.turn_time = Duration::from_nanos(draw(decisions, &[1_000_000, 0, 1]));
    settings.batch = draw(decisions, &[512, 1, 3]);
    settings.submissions = draw(decisions, &[256, 8]);
    settings.completions = draw(decisions, &[4096, 16]);
    (settings.turn_bytes, settings.buffers) = (io.turn_bytes, io.buffers);
    (settings.buffer_size, settings.head_size) = (io.buffer_size, io.buffer_size);
    settings
}

fn draw_ring(decisions: &mut Decisions, level: FaultLevel) -> RingFaults {
    let mut faults = RingFaults::default();
    faults.cooperative = draw(decisions, &[false, true]);
    faults.completions = draw(decisions, &[0, 0, 2, 3]);
    if level >= FaultLevel::Harmless {
        for fault in [
            &mut faults.failed_enters,
            &mut faults.partial_submissions,
            &mut faults.interrupted_waits,
            &mut faults.reordering,
            &mut faults.delays,
            &mut faults.workers,
            &mut faults.interrupted_requests,
            &mut faults.late_cancellations,
            &mut faults.ended_multishots,
            &mut faults.missing_buffers,
            &mut faults.greedy_receives,
            &mut faults.short_receives,
            &mut faults.buffers_at_end,
        ] {
            *fault = probability(decisions);
        }
    }
    if level >= FaultLevel::Any {
        for fault in [&mut faults.transfer_failures, &mut faults.accept_failures] {
            *fault = probability(decisions);
        }
    }
    faults
}
