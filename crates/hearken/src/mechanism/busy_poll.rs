//! Busy polling of network devices in waits of epoll(7): `EPIOCSPARAMS` (Linux 6.9).
//!
//! Before a wait sleeps, it polls the receive queue of the device that the watched sockets last used.
//! This saves the interrupt, and costs CPU time while nothing arrives. It has no effect on the
//! loopback device and on devices without NAPI.
//!
//! Pitfalls, and how the code handles them:
//!
//! a) The kernel polls one queue per instance: the sockets of an instance should use one
//!    (`SO_INCOMING_NAPI_ID`).
//! b) `prefer-busy-poll` has an effect only with `napi_defer_hard_irqs` and `gro_flush_timeout` of
//!    the device.

use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::ioctl::{Setter, ioctl, opcode};

use super::{OptionSpec, Options, Unavailable, Values};

/// The options.
pub(super) const OPTIONS: &[OptionSpec] = &[TIME, BUDGET, PREFER];

pub(super) const TIME: OptionSpec = OptionSpec {
    name: "busy-poll",
    help: "microseconds for which a wait polls the network device before it sleeps (Linux 6.9)",
    values: Values::Number { default: 0, min: 0, max: 1_000_000 },
};

pub(super) const BUDGET: OptionSpec = OptionSpec {
    name: "busy-poll-budget",
    help: "packets per poll of the device; more than 64 need CAP_NET_ADMIN",
    values: Values::Number { default: 8, min: 1, max: 65_535 },
};

pub(super) const PREFER: OptionSpec = OptionSpec {
    name: "prefer-busy-poll",
    help: "whether busy polling replaces the interrupts of the device",
    values: Values::OneOf(&["no", "yes"]),
};

/// `struct epoll_params` (linux/eventpoll.h).
#[repr(C)]
struct Params {
    busy_poll_usecs: u32,
    busy_poll_budget: u16,
    prefer_busy_poll: u8,
    padding: u8,
}

/// Sets the parameters of an epoll instance, unless all options have their defaults.
pub(super) fn apply(epoll: impl AsFd, options: &Options) -> Result<(), Unavailable> {
    let params = Params {
        busy_poll_usecs: options.number(TIME.name) as u32,
        busy_poll_budget: options.number(BUDGET.name) as u16,
        prefer_busy_poll: u8::from(options.get(PREFER.name) == "yes"),
        padding: 0,
    };
    if params.busy_poll_usecs == 0 && params.prefer_busy_poll == 0 {
        return Ok(());
    }
    const EPIOCSPARAMS: rustix::ioctl::Opcode = opcode::write::<Params>(0x8A, 1);
    // SAFETY: EPIOCSPARAMS reads one `struct epoll_params`.
    let set = unsafe { ioctl(epoll, Setter::<EPIOCSPARAMS, Params>::new(params)) };
    set.map_err(|errno| Unavailable {
        call: "ioctl(EPIOCSPARAMS)",
        error: errno.into(),
        remedy: match errno {
            Errno::NOTTY | Errno::INVAL => "it needs Linux 6.9, or busy-poll=0:prefer-busy-poll=no",
            Errno::OPNOTSUPP => "it needs a kernel with CONFIG_NET_RX_BUSY_POLL",
            Errno::PERM => "a busy-poll-budget of more than 64 needs CAP_NET_ADMIN",
            _ => "allow the call in the seccomp filter",
        },
    })
}

#[cfg(test)]
mod tests {
    use crate::mechanism::find;

    #[test]
    fn parameters_are_set_or_refused_with_a_reason() {
        for name in ["epoll-level", "epoll-edge", "epoll-once", "epoll-batched"] {
            let spec = find(&format!("{name}:busy-poll=50:busy-poll-budget=16")).unwrap();
            if let Err(reason) = spec.open() {
                assert_eq!(reason.call, "ioctl(EPIOCSPARAMS)", "{name}: {reason}");
            }
        }
        assert!(find("epoll-edge:busy-poll=1000001").is_err());
        assert!(find("epoll-edge:busy-poll-budget=0").is_err());
    }
}
