//! The table of mechanisms, and selection by name.

use std::fmt;
use std::thread;

use super::options::{OptionSpec, Options, Values};
use super::{Mechanism, Open, Semantics, Unavailable, auto};

/// Calls `$callback!` with the table of mechanisms: one line each, `module => Type`.
///
/// The table is the only list of mechanisms. Names, probing, tests, benchmarks and command lines
/// are generated from it.
///
/// ```
/// macro_rules! count {
///     ($($module:ident => $mechanism:ty,)*) => { [$(stringify!($module)),*].len() };
/// }
/// assert_eq!(hearken::for_each_mechanism!(count), hearken::mechanism::TABLE.len());
/// ```
#[macro_export]
macro_rules! for_each_mechanism {
    ($callback:ident) => {
        $callback! {
            select => $crate::mechanism::select::Select,
            poll => $crate::mechanism::poll::Poll,
            rt_signal => $crate::mechanism::rt_signal::RtSignal,
            signal_per_fd => $crate::mechanism::signal_per_fd::SignalPerFd,
            dev_poll => $crate::mechanism::trigger::AsLevel<
                $crate::mechanism::epoll::Epoll<$crate::mechanism::epoll::Edge>
            >,
            epoll_level => $crate::mechanism::epoll::Epoll<$crate::mechanism::epoll::Level>,
            epoll_edge => $crate::mechanism::epoll::Epoll<$crate::mechanism::epoll::Edge>,
            epoll_once => $crate::mechanism::epoll::Epoll<$crate::mechanism::epoll::Once>,
            epoll_batched => $crate::mechanism::epoll_batched::EpollBatched,
            locality => $crate::mechanism::locality::Locality,
            uring_poll => $crate::mechanism::uring_poll::UringPoll,
            kernel_queue => $crate::mechanism::kernel_queue::KernelQueue,
        }
    };
}

/// A row of the table of mechanisms.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Entry {
    /// The name on command lines.
    pub name: &'static str,
    /// A description in one line.
    pub summary: &'static str,
    /// The publication that introduced or compared it, if there is one.
    pub source: Option<&'static str>,
    /// The properties with default options.
    pub semantics: Semantics,
    /// The options.
    pub options: &'static [OptionSpec],
    /// Whether [`auto`] may select it.
    pub auto: bool,
    needs_privileges: fn(&Options) -> bool,
    open: fn(&Options) -> Result<Box<dyn Mechanism>, Unavailable>,
}

impl Options {
    /// Sets an option of mechanism `name` from its text form, `option=value`.
    pub(crate) fn set_from_text(
        &mut self,
        name: &'static str,
        option: &str,
    ) -> Result<(), SelectError> {
        let invalid = |reason| SelectError::Option { name, reason };
        let (option, value) = option.split_once('=').ok_or_else(|| {
            invalid(format!("'{option}' is not an option (use {name}:option=value)"))
        })?;
        self.set(option, value).map_err(invalid)
    }
}

impl Entry {
    /// Returns the mechanism with its default options.
    pub const fn spec(&'static self) -> Spec {
        Spec { entry: self, options: Options::defaults(self.options) }
    }

    /// Returns the mechanism with its default options, and with each other word of each option.
    pub fn variants(&'static self) -> Vec<Spec> {
        let mut variants = vec![self.spec()];
        for OptionSpec { name, values, .. } in self.options {
            let Values::OneOf(words) = values else { continue };
            for word in words.iter().skip(1) {
                let mut spec = self.spec();
                if spec.options.set(name, word).is_ok() {
                    variants.push(spec);
                }
            }
        }
        variants
    }
}

/// A mechanism with its options. Its text form on command lines is `name` or
/// `name:option=value:option=value`.
///
/// ```
/// use hearken::mechanism;
///
/// let spec = mechanism::find("epoll-batched:trigger=level")?;
/// assert_eq!(spec.entry.name, "epoll-batched");
/// assert_eq!(spec.to_string(), "epoll-batched:trigger=level");
/// if let Err(reason) = spec.probe() {
///     println!("{spec} is not available: {reason}");
/// }
/// # Ok::<(), mechanism::SelectError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Spec {
    /// The mechanism's row of the table.
    pub entry: &'static Entry,
    /// The options.
    pub options: Options,
}

impl Spec {
    /// Creates an instance whose type is erased.
    ///
    /// # Errors
    /// [`Unavailable`] names the refused call, its error, and how to make it available.
    pub fn open(&self) -> Result<Box<dyn Mechanism>, Unavailable> {
        (self.entry.open)(&self.options)
    }

    /// Returns whether it needs privileges with these options.
    pub fn needs_privileges(&self) -> bool {
        (self.entry.needs_privileges)(&self.options)
    }

    /// Checks whether this user can use the mechanism, by creating an instance and dropping it.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub fn probe(&self) -> Result<(), Unavailable> {
        in_new_thread(|| self.open().map(drop))
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.entry.name, self.options)
    }
}

/// Calls `task` in a new thread, or in this one if no thread can be started. A mechanism can have
/// lasting effects on its thread: a signal stays blocked, or a call is interrupted after a ring is
/// closed.
pub(crate) fn in_new_thread<T: Send>(task: impl Fn() -> T + Sync) -> T {
    let result = thread::scope(|scope| {
        let thread = thread::Builder::new().spawn_scoped(scope, &task).ok()?;
        thread.join().ok()
    });
    result.unwrap_or_else(task)
}

macro_rules! table {
    ($($module:ident => $mechanism:ty,)*) => {
        /// All mechanisms, in the order in which the literature introduced them.
        pub const TABLE: &[Entry] = &[$(Entry {
            name: <$mechanism as Open>::NAME,
            summary: <$mechanism as Open>::SUMMARY,
            source: <$mechanism as Open>::SOURCE,
            semantics: <$mechanism as Open>::SEMANTICS,
            options: <$mechanism as Open>::OPTIONS,
            auto: <$mechanism as Open>::AUTO,
            needs_privileges: <$mechanism as Open>::needs_privileges,
            open: |options| Ok(Box::new(<$mechanism as Open>::open_with(options)?)),
        },)*];

        fn visit_one<V: Visitor>(spec: &Spec, visitor: V) -> Result<V::Output, (V, Unavailable)> {
            match spec.entry.name {
                $(<$mechanism as Open>::NAME => {
                    match <$mechanism as Open>::open_with(&spec.options) {
                        Ok(mechanism) => Ok(visitor.visit(mechanism)),
                        Err(reason) => Err((visitor, reason)),
                    }
                },)*
                _ => unreachable!("a spec refers to a row of the table"),
            }
        }
    };
}

for_each_mechanism!(table);

/// The mechanisms whose instances can move to another thread.
const MOVABLE: &[&str] = {
    const fn name<M: Open + Send>() -> &'static str {
        M::NAME
    }
    &[
        name::<super::select::Select>(),
        name::<super::poll::Poll>(),
        name::<super::trigger::AsLevel<super::epoll::Epoll<super::epoll::Edge>>>(),
        name::<super::epoll::Epoll<super::epoll::Level>>(),
        name::<super::epoll::Epoll<super::epoll::Edge>>(),
        name::<super::epoll::Epoll<super::epoll::Once>>(),
        name::<super::locality::Locality>(),
    ]
};

/// Returns whether an instance belongs to the thread that creates it.
pub(crate) fn is_thread_bound(spec: &Spec) -> bool {
    !MOVABLE.contains(&spec.entry.name)
}

/// The name that selects the best available mechanism: see [`auto`].
pub const AUTO: &str = "auto";

/// A function of a mechanism whose type is known only at run time.
///
/// ```
/// use hearken::mechanism::{Mechanism, Open, Registry, Visitor, visit};
/// use std::os::fd::OwnedFd;
///
/// struct CreateRegistry;
///
/// impl Visitor for CreateRegistry {
///     type Output = &'static str;
///
///     fn visit<M: Open>(self, mechanism: M) -> &'static str {
///         // This code is compiled once for each mechanism.
///         let registry = Registry::<M, OwnedFd>::new(mechanism);
///         assert!(registry.is_empty());
///         M::NAME
///     }
/// }
///
/// assert_eq!(visit("poll", CreateRegistry)?, "poll");
/// # Ok::<(), hearken::mechanism::SelectError>(())
/// ```
pub trait Visitor {
    /// The result.
    type Output;

    /// Calls the function.
    fn visit<M: Open>(self, mechanism: M) -> Self::Output;
}

/// A mechanism could not be selected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SelectError {
    /// No mechanism has this name.
    #[error("unknown mechanism '{name}' (known: {known})")]
    Unknown {
        /// The requested name.
        name: String,
        /// The known names.
        known: String,
    },
    /// An option is invalid.
    #[error("mechanism {name}: {reason}")]
    Option {
        /// The mechanism.
        name: &'static str,
        /// The error, with the valid values.
        reason: String,
    },
    /// The kernel refuses the mechanism.
    #[error("mechanism {name} is not available: {reason}")]
    Unavailable {
        /// The mechanism.
        name: String,
        /// The kernel's error.
        reason: Unavailable,
    },
}

fn unknown(name: &str) -> SelectError {
    let names: Vec<_> = std::iter::once(AUTO).chain(TABLE.iter().map(|entry| entry.name)).collect();
    SelectError::Unknown { name: name.to_owned(), known: names.join(", ") }
}

/// Parses a mechanism with options, or [`AUTO`].
///
/// ```
/// let spec = hearken::mechanism::find("poll")?;
/// assert_eq!(spec.entry.name, "poll");
/// let mechanism = spec.open()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`SelectError::Unknown`], [`SelectError::Option`].
pub fn find(spec: &str) -> Result<Spec, SelectError> {
    if spec == AUTO {
        return Ok(auto::ranking().best().clone());
    }
    let mut parts = spec.split(':');
    let name = parts.next().unwrap_or_default();
    let entry = TABLE.iter().find(|entry| entry.name == name).ok_or_else(|| unknown(name))?;
    let mut spec = entry.spec();
    for part in parts {
        spec.options.set_from_text(entry.name, part)?;
    }
    Ok(spec)
}

/// Creates the mechanism that `spec` names and passes it to `visitor` with its type. With [`AUTO`],
/// if the best mechanism is refused after all, the next one is used.
///
/// The visitor is compiled once for each mechanism, so its hot path contains no dispatch.
///
/// # Errors
/// [`SelectError`]: the mechanism or an option is unknown, or the kernel refuses it.
pub fn visit<V: Visitor>(spec: &str, mut visitor: V) -> Result<V::Output, SelectError> {
    if spec != AUTO {
        let spec = find(spec)?;
        return visit_one(&spec, visitor)
            .map_err(|(_, reason)| SelectError::Unavailable { name: spec.to_string(), reason });
    }
    let mut last = None;
    for spec in auto::ranking().in_order() {
        match visit_one(spec, visitor) {
            Ok(output) => return Ok(output),
            Err((again, reason)) => {
                visitor = again;
                last = Some(SelectError::Unavailable { name: spec.to_string(), reason });
            }
        }
    }
    Err(last.unwrap_or_else(|| unknown(AUTO)))
}
