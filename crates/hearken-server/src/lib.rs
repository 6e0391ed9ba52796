//! Hearken's static site server.
