//! Selecting an implementation of [`Io`] by name: any mechanism, for
//! [`readiness`](super::readiness), or [`uring`](super::uring).

use std::fmt;
use std::str::FromStr;

use super::Relay;
use super::readiness::{Policy, ReadinessIo};
use super::uring::{self, Settings, UringIo};
use crate::mechanism::{self, Open, OptionSpec, Options, SelectError, Unavailable};
use crate::waker::Wakeups;

/// The name of [`uring`](super::uring) on every command line.
pub const URING: &str = "uring";

/// The one-line description of [`uring`](super::uring).
pub const URING_SUMMARY: &str = "io_uring(7) completions: the kernel performs the operations";

/// The options of [`uring`](super::uring).
pub const URING_OPTIONS: &[OptionSpec] = uring::OPTIONS;

/// An implementation with its options, as written on a command line: a mechanism, or
/// `uring:option=value`.
#[derive(Clone, Debug)]
pub enum Spec {
    /// Readiness, over a mechanism.
    Readiness(mechanism::Spec),
    /// Completions of io_uring, with its options.
    Uring(Options),
}

impl Spec {
    /// Returns the name, without options.
    pub fn name(&self) -> &'static str {
        match self {
            Spec::Readiness(spec) => spec.entry.name,
            Spec::Uring(_) => URING,
        }
    }

    /// Returns whether the implementation needs privileges with these options.
    pub fn needs_privileges(&self) -> bool {
        matches!(self, Spec::Readiness(spec) if spec.needs_privileges())
    }

    /// Checks whether the implementation is available to this process.
    ///
    /// # Errors
    /// [`Unavailable`]: the call that the kernel refused, its error, and a remedy.
    pub fn probe(&self) -> Result<(), Unavailable> {
        match self {
            Spec::Readiness(spec) => spec.probe(),
            Spec::Uring(options) => {
                let settings = Settings::from_options(options, &Policy::default());
                mechanism::in_new_thread(|| UringIo::new(settings).map(drop))
            }
        }
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spec::Readiness(spec) => spec.fmt(f),
            Spec::Uring(options) => write!(f, "{URING}{options}"),
        }
    }
}

impl FromStr for Spec {
    type Err = SelectError;

    /// Parses a specification like [`find`].
    fn from_str(spec: &str) -> Result<Spec, SelectError> {
        find(spec)
    }
}

/// Parses a specification: `uring`, a mechanism, or [`AUTO`](mechanism::AUTO), with its options
/// after it.
///
/// ```
/// use hearken::io::{Spec, find};
///
/// assert!(matches!(find("uring:buffers=64")?, Spec::Uring(_)));
/// assert_eq!(find("epoll-edge")?.name(), "epoll-edge");
/// # Ok::<(), hearken::mechanism::SelectError>(())
/// ```
///
/// # Errors
/// [`SelectError::Unknown`] for an unknown name, [`SelectError::Option`] for an unknown or invalid
/// option.
pub fn find(spec: &str) -> Result<Spec, SelectError> {
    let (name, options) = spec.split_once(':').map_or((spec, None), |(name, of)| (name, Some(of)));
    if name != URING {
        return mechanism::find(spec).map(Spec::Readiness).map_err(|error| match error {
            SelectError::Unknown { name, known } => {
                SelectError::Unknown { name, known: format!("{known}, {URING}") }
            }
            other => other,
        });
    }
    let mut chosen = Options::defaults(URING_OPTIONS);
    for option in options.into_iter().flat_map(|options| options.split(':')) {
        chosen.set_from_text(URING, option)?;
    }
    Ok(Spec::Uring(chosen))
}

/// Returns all names: those of the mechanisms in the table, and [`URING`].
pub fn names() -> impl Iterator<Item = &'static str> {
    mechanism::TABLE.iter().map(|entry| entry.name).chain([URING])
}

/// A generic function over an implementation whose type is known only at run time.
pub trait Visitor {
    /// The result of the function.
    type Output;

    /// Calls the function with `io`. `name` is the name of the implementation, without its options.
    fn visit<I: Relay + 'static>(self, name: &'static str, io: I) -> Self::Output;
}

/// Opens the implementation that `spec` names, and passes it with its type to `visitor`. `wakeups`
/// wake it.
///
/// `policy` applies to readiness. Its limits of turns and its buffer size apply to io_uring as
/// well. If `spec` is [`AUTO`](mechanism::AUTO) and the kernel refuses the best mechanism, the next
/// best is opened.
///
/// # Errors
/// [`SelectError`]: the name or an option is unknown, or the kernel refuses the implementation.
pub fn visit<V: Visitor>(
    spec: &str,
    policy: &Policy,
    wakeups: Wakeups,
    visitor: V,
) -> Result<V::Output, SelectError> {
    let refused = |reason| SelectError::Unavailable { name: spec.to_owned(), reason };
    match find(spec)? {
        Spec::Readiness(_) => {
            mechanism::visit(spec, Over { policy, wakeups, visitor })?.map_err(refused)
        }
        Spec::Uring(options) => {
            let settings = Settings::from_options(&options, policy);
            let io = UringIo::with_wakeups(settings, wakeups).map_err(refused)?;
            Ok(visitor.visit(URING, io))
        }
    }
}

/// A visitor of mechanisms that creates an implementation over each.
struct Over<'a, V> {
    policy: &'a Policy,
    wakeups: Wakeups,
    visitor: V,
}

impl<V: Visitor> mechanism::Visitor for Over<'_, V> {
    type Output = Result<V::Output, Unavailable>;

    fn visit<M: Open>(self, mechanism: M) -> Self::Output {
        let io = ReadinessIo::with_wakeups(mechanism, *self.policy, self.wakeups);
        let io = io.map_err(|error| Unavailable {
            call: "declaring interest in wake-ups",
            error,
            remedy: "free memory, or raise the limits that the mechanism depends on",
        })?;
        Ok(self.visitor.visit(M::NAME, io))
    }
}
