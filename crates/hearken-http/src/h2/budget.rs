//! Budgets that bound how much a peer can do without useful work.

use super::error::ConnectionError;
use super::frame::HEADER_BYTES;
use super::limits::Limits;

/// The remaining budgets of a connection.
#[derive(Debug)]
pub(super) struct Budgets {
    overhead: u32,
    resets: u32,
    /// Number of acknowledgements that wait to be sent.
    acknowledgements: u32,
}

impl Budgets {
    pub(super) fn new(limits: &Limits) -> Self {
        Self { overhead: limits.max_overhead_bytes, resets: limits.max_resets, acknowledgements: 0 }
    }

    /// Counts a frame with `payload` bytes of overhead.
    pub(super) fn spend(&mut self, payload: usize) -> Result<(), ConnectionError> {
        let bytes = u32::try_from(payload + HEADER_BYTES).unwrap_or(u32::MAX);
        self.overhead = self
            .overhead
            .checked_sub(bytes)
            .ok_or(ConnectionError::excess("too many control frames, empty frames or padding"))?;
        Ok(())
    }

    /// Counts useful bytes.
    #[inline(always)]
    pub(super) fn earn(&mut self, bytes: usize, limits: &Limits) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.overhead = self.overhead.saturating_add(bytes).min(limits.max_overhead_bytes);
    }

    /// Counts a stream that was reset.
    pub(super) fn count_reset(&mut self) -> Result<(), ConnectionError> {
        self.resets =
            self.resets.checked_sub(1).ok_or(ConnectionError::excess("too many reset streams"))?;
        Ok(())
    }

    /// Counts a stream that ended normally.
    #[inline(always)]
    pub(super) fn count_finished(&mut self, limits: &Limits) {
        self.resets = (self.resets + 1).min(limits.max_resets);
    }

    /// Counts an acknowledgement.
    pub(super) fn acknowledge(&mut self, limits: &Limits) -> Result<(), ConnectionError> {
        self.acknowledgements += 1;
        if self.acknowledgements > limits.max_acknowledgements {
            return Err(ConnectionError::excess("too many frames to acknowledge"));
        }
        Ok(())
    }

    /// Notes that all acknowledgements were sent.
    #[inline(always)]
    pub(super) fn acknowledgements_sent(&mut self) {
        self.acknowledgements = 0;
    }
}
