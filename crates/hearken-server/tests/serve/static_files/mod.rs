//! Static files without sockets: requests and responses as bytes.

mod cache;
mod conditional;
mod descriptors;
mod methods;
mod paths;
mod support;
