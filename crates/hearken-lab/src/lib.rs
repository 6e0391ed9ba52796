//! Experiments that compare event mechanisms on real traffic.
