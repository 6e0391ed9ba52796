//! HTTP/2 clients. They write and read frames by code of their own, independently of that under test.
//!
//! | part | contents |
//! |---|---|
//! | `client` | runs the connections: connects, opens streams, sends, ends |
//! | `receive` | frames of the server, and their checks |
//! | `behaviour` | the drawn behaviour of a client on a connection |
//! | `attack` | violations of the protocol |
//! | `frame` | writes and reads frames |
//! | `message` | requests as fields and content; heads of responses |
//! | `facts` | facts about a connection at its end |
//! | `checks` | reasons for the ends of streams and connections |

mod attack;
mod behaviour;
mod checks;
mod client;
mod facts;
mod frame;
mod message;
mod receive;

pub(crate) use checks::{Bounds, Reason, cover};
pub(crate) use client::run;
pub use facts::{Http2Facts, StreamEnd};
