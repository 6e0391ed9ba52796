//! Fuzz targets of Hearken's parsers. The README of the crate says how to run them.
//!
//! Each target checks that a parser neither panics nor accepts what it must reject, for arbitrary bytes.

#[cfg(test)]
mod http2;
#[cfg(test)]
mod http_bodies;
#[cfg(test)]
mod http_fields;
#[cfg(test)]
mod http_forwarding;
#[cfg(test)]
mod http_heads;
#[cfg(test)]
mod load_options;
#[cfg(test)]
mod load_replies;
#[cfg(test)]
mod load_reports;
#[cfg(test)]
mod load_workloads;
#[cfg(test)]
mod names;
#[cfg(test)]
mod proxy_protocol;
#[cfg(test)]
mod variation;
