//! Error codes and connection errors.

use std::fmt;

/// An error code of RFC 9113 section 7.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub u32);

macro_rules! codes {
    ($($name:ident $number:literal $doc:literal)*) => {
        impl ErrorCode {
            $(#[doc = $doc] pub const $name: Self = Self($number);)*
        }

        impl fmt::Debug for ErrorCode {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.0 {
                    $($number => f.write_str(stringify!($name)),)*
                    code => write!(f, "{code:#x}"),
                }
            }
        }
    };
}

codes! {
    NO_ERROR 0 "Graceful end."
    PROTOCOL_ERROR 1 "Violation of the protocol."
    INTERNAL_ERROR 2 "Internal error."
    FLOW_CONTROL_ERROR 3 "Violation of flow control."
    SETTINGS_TIMEOUT 4 "Settings were not acknowledged."
    STREAM_CLOSED 5 "Frame on a stream that was closed."
    FRAME_SIZE_ERROR 6 "Frame of invalid size."
    REFUSED_STREAM 7 "Request that was not processed and can be repeated."
    CANCEL 8 "Cancelled stream."
    COMPRESSION_ERROR 9 "Invalid field block."
    CONNECT_ERROR 10 "Failure of the connection of a CONNECT request."
    ENHANCE_YOUR_CALM 11 "Excessive load by the peer."
    INADEQUATE_SECURITY 12 "Insufficient transport security."
    HTTP_1_1_REQUIRED 13 "Request that must be sent in HTTP/1.1."
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// An error that ends a connection.
///
/// The output contains a GOAWAY frame with the code and the reason. The caller sends it and closes the
/// connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionError {
    /// Code of the GOAWAY frame.
    pub code: ErrorCode,
    /// Description of the error for logs. It never contains data from the peer.
    pub reason: &'static str,
}

impl ConnectionError {
    pub(super) const fn new(code: ErrorCode, reason: &'static str) -> Self {
        Self { code, reason }
    }

    pub(super) const fn protocol(reason: &'static str) -> Self {
        Self::new(ErrorCode::PROTOCOL_ERROR, reason)
    }

    pub(super) const fn frame_size(reason: &'static str) -> Self {
        Self::new(ErrorCode::FRAME_SIZE_ERROR, reason)
    }

    pub(super) const fn flow_control(reason: &'static str) -> Self {
        Self::new(ErrorCode::FLOW_CONTROL_ERROR, reason)
    }

    /// Creates the error of an exceeded limit.
    pub(super) const fn excess(reason: &'static str) -> Self {
        Self::new(ErrorCode::ENHANCE_YOUR_CALM, reason)
    }
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.reason)
    }
}

impl std::error::Error for ConnectionError {}
