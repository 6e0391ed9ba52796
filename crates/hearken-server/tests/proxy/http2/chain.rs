//! Chains.
