//! The table of mechanisms, and choosing from it by name.

use std::fmt;
use std::thread;

use super::options::{Choice, Options, Values};
use super::{Mechanism, Open, Semantics, Unavailable, auto};

/// Calls `$callback!` with the table of mechanisms: one line each, `module => Type`.
///
/// Names, probing, tests, benches and command lines are made from it; there is no other list.
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

/// One row of the table of mechanisms.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Entry {
    /// The name on every command line.
    pub name: &'static str,
    /// One line on what it is.
    pub summary: &'static str,
    /// What holds for it, with its options' defaults.
    pub semantics: Semantics,
    /// What can be chosen about it.
    pub options: &'static [Choice],
    needs_privileges: fn(&Options) -> bool,
    open: fn(&Options) -> Result<Box<dyn Mechanism>, Unavailable>,
}

impl Options {
    /// Chooses what is written after the name of `of`: `option=value`.
    pub(crate) fn choose(&mut self, of: &'static str, option: &str) -> Result<(), SelectError> {
        let refused = |reason| SelectError::Option { name: of, reason };
        let (name, value) = option.split_once('=').ok_or_else(|| {
            refused(format!("\"{option}\" is not an option: write {of}:option=value"))
        })?;
        self.set(name, value).map_err(refused)
    }
}

impl Entry {
    /// It, with its options' defaults.
    pub const fn spec(&'static self) -> Spec {
        Spec { entry: self, options: Options::defaults(self.options) }
    }

    /// It with its defaults, and then with every other word of every option.
    pub fn variants(&'static self) -> Vec<Spec> {
        let mut variants = vec![self.spec()];
        for Choice { name, values, .. } in self.options {
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

/// A mechanism with its options, as said on a command line: `name`, or
/// `name:option=value:option=value`.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Its row of the table.
    pub entry: &'static Entry,
    /// What was chosen about it.
    pub options: Options,
}

impl Spec {
    /// Asks the kernel for one, to be used by name.
    ///
    /// # Errors
    /// [`Unavailable`]: which call was refused, how, and what would allow it.
    pub fn open(&self) -> Result<Box<dyn Mechanism>, Unavailable> {
        (self.entry.open)(&self.options)
    }

    /// True if it needs privileges, with these options.
    pub fn needs_privileges(&self) -> bool {
        (self.entry.needs_privileges)(&self.options)
    }

    /// Asks the kernel for one and gives it back: may this user have it here and now?
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn probe(&self) -> Result<(), Unavailable> {
        apart(|| self.open().map(drop))
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.entry.name, self.options)
    }
}

/// Does it in a thread of its own, where there can be one: a mechanism leaves traces in the thread that
/// had it, such as a signal that stays blocked, or a call that is interrupted when a ring is gone.
pub(crate) fn apart<T: Send>(what: impl Fn() -> T + Sync) -> T {
    let apart = thread::scope(|scope| {
        let done = thread::Builder::new().spawn_scoped(scope, &what).ok()?;
        done.join().ok()
    });
    apart.unwrap_or_else(what)
}

macro_rules! table {
    ($($module:ident => $mechanism:ty,)*) => {
        /// Every mechanism, in the order in which the literature brought them.
        pub const TABLE: &[Entry] = &[$(Entry {
            name: <$mechanism as Open>::NAME,
            summary: <$mechanism as Open>::SUMMARY,
            semantics: <$mechanism as Open>::SEMANTICS,
            options: <$mechanism as Open>::OPTIONS,
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
                _ => unreachable!("a spec has a row of the table"),
            }
        }
    };
}

for_each_mechanism!(table);

/// The name that stands for the best that can be had here: [`auto`].
pub const AUTO: &str = "auto";

/// Something to be done with a mechanism whose type is known only at run time.
pub trait Visitor {
    /// What it yields.
    type Output;

    /// Does it.
    fn visit<M: Open>(self, mechanism: M) -> Self::Output;
}

/// A mechanism could not be chosen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SelectError {
    /// There is none of that name.
    #[error("unknown mechanism \"{name}\"; known are: {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What could have been.
        known: String,
    },
    /// An option of it is not as it should be.
    #[error("mechanism {name}: {reason}")]
    Option {
        /// What was asked for.
        name: &'static str,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// The kernel refuses it.
    #[error("mechanism {name} cannot be had here: {reason}")]
    Unavailable {
        /// What was asked for.
        name: String,
        /// The kernel's answer.
        reason: Unavailable,
    },
}

fn unknown(name: &str) -> SelectError {
    let names: Vec<_> = std::iter::once(AUTO).chain(TABLE.iter().map(|entry| entry.name)).collect();
    SelectError::Unknown { name: name.to_owned(), known: names.join(", ") }
}

/// The mechanism that `spec` says: a name, options after it, or [`AUTO`].
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
        return Ok(auto::choose().best().clone());
    }
    let mut parts = spec.split(':');
    let name = parts.next().unwrap_or_default();
    let entry = TABLE.iter().find(|entry| entry.name == name).ok_or_else(|| unknown(name))?;
    let mut spec = entry.spec();
    for part in parts {
        spec.options.choose(entry.name, part)?;
    }
    Ok(spec)
}

/// Opens what `spec` says and hands it, with its type, to `visitor`. Where that is [`AUTO`] and
/// the best is refused after all, the next best is opened.
///
/// What the visitor builds is compiled once for each mechanism, so that nothing on its hot path
/// asks which one it is.
///
/// # Errors
/// [`SelectError`]: there is no such mechanism or option, or the kernel refuses it.
pub fn visit<V: Visitor>(spec: &str, mut visitor: V) -> Result<V::Output, SelectError> {
    if spec != AUTO {
        let spec = find(spec)?;
        return visit_one(&spec, visitor)
            .map_err(|(_, reason)| SelectError::Unavailable { name: spec.to_string(), reason });
    }
    let mut last = None;
    for spec in auto::choose().in_order() {
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
