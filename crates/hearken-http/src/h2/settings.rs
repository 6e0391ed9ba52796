//! Settings, RFC 9113 section 6.5.

use super::error::{ConnectionError, ErrorCode};
use super::frame::{DEFAULT_WINDOW, MAX_WINDOW, MIN_MAX_FRAME_BYTES};
use super::hpack::DEFAULT_TABLE_BYTES;
use super::limits::Config;

const HEADER_TABLE_SIZE: u16 = 1;
const ENABLE_PUSH: u16 = 2;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_FRAME_SIZE: u16 = 5;
const MAX_HEADER_LIST_SIZE: u16 = 6;
/// RFC 8441.
const ENABLE_CONNECT_PROTOCOL: u16 = 8;
/// RFC 9218.
const NO_RFC7540_PRIORITIES: u16 = 9;

/// The settings of the peer.
#[derive(Debug, Clone, Copy)]
pub(super) struct PeerSettings {
    pub(super) table_bytes: u32,
    pub(super) max_streams: u32,
    pub(super) stream_window: u32,
    pub(super) max_frame_bytes: u32,
    pub(super) extended_connect: bool,
}

impl PeerSettings {
    /// Returns the settings before any was received.
    pub(super) fn new() -> Self {
        Self {
            table_bytes: DEFAULT_TABLE_BYTES as u32,
            max_streams: u32::MAX,
            stream_window: DEFAULT_WINDOW,
            max_frame_bytes: MIN_MAX_FRAME_BYTES as u32,
            extended_connect: false,
        }
    }

    /// Applies one setting.
    pub(super) fn apply(
        &mut self,
        id: u16,
        value: u32,
        from_server: bool,
    ) -> Result<(), ConnectionError> {
        match id {
            HEADER_TABLE_SIZE => self.table_bytes = value,
            ENABLE_PUSH if value > 1 || from_server && value == 1 => {
                return Err(ConnectionError::protocol("invalid value of ENABLE_PUSH"));
            }
            MAX_CONCURRENT_STREAMS => self.max_streams = value,
            INITIAL_WINDOW_SIZE if i64::from(value) > MAX_WINDOW => {
                return Err(ConnectionError::new(
                    ErrorCode::FLOW_CONTROL_ERROR,
                    "invalid value of INITIAL_WINDOW_SIZE",
                ));
            }
            INITIAL_WINDOW_SIZE => self.stream_window = value,
            MAX_FRAME_SIZE => {
                if !(MIN_MAX_FRAME_BYTES as u32..1 << 24).contains(&value) {
                    return Err(ConnectionError::protocol("invalid value of MAX_FRAME_SIZE"));
                }
                self.max_frame_bytes = value;
            }
            ENABLE_CONNECT_PROTOCOL => {
                if value > 1 || self.extended_connect && value == 0 {
                    return Err(ConnectionError::protocol(
                        "invalid value of ENABLE_CONNECT_PROTOCOL",
                    ));
                }
                self.extended_connect = value == 1;
            }
            NO_RFC7540_PRIORITIES if value > 1 => {
                return Err(ConnectionError::protocol("invalid value of NO_RFC7540_PRIORITIES"));
            }
            _ => {}
        }
        Ok(())
    }
}

/// Returns the settings to announce.
pub(super) fn announced(config: &Config, is_server: bool) -> Vec<(u16, u32)> {
    let limits = &config.limits;
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let mut settings = vec![
        (INITIAL_WINDOW_SIZE, limits.stream_window),
        (MAX_HEADER_LIST_SIZE, number(limits.head.max_head_bytes)),
    ];
    if limits.decoder_table_bytes != DEFAULT_TABLE_BYTES {
        settings.push((HEADER_TABLE_SIZE, number(limits.decoder_table_bytes)));
    }
    if limits.max_frame_bytes as usize != MIN_MAX_FRAME_BYTES {
        settings.push((MAX_FRAME_SIZE, limits.max_frame_bytes));
    }
    if is_server {
        settings.push((MAX_CONCURRENT_STREAMS, limits.max_streams));
        settings.push((NO_RFC7540_PRIORITIES, 1));
        if config.extended_connect {
            settings.push((ENABLE_CONNECT_PROTOCOL, 1));
        }
    } else {
        settings.push((ENABLE_PUSH, 0));
    }
    settings
}
