//! What a site answers, through its public face: requests as bytes, answers as bytes.

mod cache;
mod conditional;
mod methods;
mod paths;
mod support;
