//! Deterministic simulation of Hearken's programs.
//!
//! A history runs real programs over the simulated network of [`hearken::io::sim`], in one thread and
//! in virtual time. A seed determines everything that happens. Checks compare what each side observed.
//!
//! | module | contents |
//! |---|---|
//! | [`history`] | runs one history |
//! | [`kinds`] | the kinds of histories: their programs and invariants |
//! | [`swarm`] | the configuration that a history draws for itself |
//! | [`selection`] | what the first decision selects |
//! | [`io_level`] | the implementation of `Io` under the programs |
//! | [`scheduler`] | runs programs as coroutines |
//! | [`campaign`] | runs many histories |
//! | [`client`], [`http2`] | clients of HTTP/1.1 and of HTTP/2 |
//! | [`shrink`] | finds a shorter history with the same finding |
//! | [`bugs`] | searches for planted bugs |
//! | [`history_file`] | files with one history |

mod allocator;
pub mod bugs;
pub mod campaign;
pub mod client;
mod clients;
mod connector;
pub mod content;
pub mod finding;
mod handshakes;
pub mod history;
pub mod history_file;
pub mod http2;
pub mod io_level;
pub mod kinds;
pub mod log_line;
pub mod origin;
mod panics;
mod program_io;
pub mod report;
pub mod response;
pub mod scheduler;
pub mod selection;
pub mod shrink;
pub mod swarm;
mod tls;
mod waiter;

pub use program_io::ProgramIo;
