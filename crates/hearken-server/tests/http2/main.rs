//! Tests of HTTP/2, over sockets: the same responses as over HTTP/1.1, abuse, shutdown, other programs.
//! One case: `cargo test -p hearken-server --test http2 -- streams::answers_many_requests_at_once`

#[path = "../common/mod.rs"]
mod common;

mod abuse;
mod client;
mod equality;
mod programs;
mod shutdown;
mod streams;
mod tunnels;
