//! Violations of the protocol.

use super::frame::{self, DATA, HEADERS, PING, SETTINGS, write};
use super::message::Message;

/// A violation that ends the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attack {
    /// Content on a stream that was not opened.
    DataOnIdleStream,
    /// A stream with an even identifier.
    EvenStream,
    /// A stream with the identifier of an earlier one.
    UsedStream,
    /// An increment of 0.
    NoIncrement,
    /// A window of more than 2^31-1 bytes.
    LargeWindow,
    /// A frame that is larger than permitted.
    LargeFrame,
    /// A field block that is not valid.
    Compression,
    /// CONTINUATION without HEADERS.
    Continuation,
    /// Another frame within a field block.
    WithinBlock,
    /// A PING frame of the wrong length.
    ShortPing,
    /// A setting with a value that is not valid.
    Settings,
    /// A promise of a client.
    Promise,
    /// RST_STREAM for a stream that was not opened.
    ResetIdleStream,
    /// Padding that is longer than its frame.
    Padding,
    /// More PING frames than may wait for an answer.
    Pings,
    /// Many empty frames.
    EmptyFrames,
}

use Attack::{
    Compression, Continuation, DataOnIdleStream, EmptyFrames, EvenStream, LargeFrame, LargeWindow,
    NoIncrement, Padding, Pings, Promise, ResetIdleStream, Settings, ShortPing, UsedStream,
    WithinBlock,
};

/// All violations.
pub(super) const ATTACKS: [Attack; 16] = [
    DataOnIdleStream,
    EvenStream,
    UsedStream,
    NoIncrement,
    LargeWindow,
    LargeFrame,
    Compression,
    Continuation,
    WithinBlock,
    ShortPing,
    Settings,
    Promise,
    ResetIdleStream,
    Padding,
    Pings,
    EmptyFrames,
];

impl Attack {
    /// Returns whether the connection ends in any case: the violation is neither one of amount nor of
    /// one stream.
    pub(super) fn is_fatal(self) -> bool {
        !matches!(self, Pings | EmptyFrames | UsedStream)
    }

    /// Appends the frames. `next` is the identifier of the next stream, and `used` that of one which
    /// was opened.
    pub(super) fn write(self, out: &mut Vec<u8>, next: u32, used: Option<u32>) {
        match self {
            DataOnIdleStream => write(out, DATA, 0, next, b"content"),
            EvenStream => write(out, HEADERS, frame::END_HEADERS, 2, &[0x82]),
            // The field block is valid. Without an earlier stream, 0 is not valid either.
            UsedStream => {
                let flags = frame::END_HEADERS | frame::END_STREAM;
                write(out, HEADERS, flags, used.unwrap_or(0), &[0x82, 0x84, 0x86]);
            }
            NoIncrement => frame::write_window_update(out, 0, 0),
            LargeWindow => frame::write_window_update(out, 0, u32::MAX >> 1),
            LargeFrame => write(out, 0x70, 0, 0, &vec![0; 17_000]),
            Compression => write(out, HEADERS, frame::END_HEADERS, next, &[0xff, 0xff, 0xff, 0x7f]),
            Continuation => write(out, frame::CONTINUATION, frame::END_HEADERS, next, &[]),
            WithinBlock => {
                write(out, HEADERS, 0, next, &[0x82]);
                write(out, PING, 0, 0, &[0; 8]);
            }
            ShortPing => write(out, PING, 0, 0, &[0; 7]),
            Settings => frame::write_settings(out, &[(frame::SETTINGS_ENABLE_PUSH, 2)]),
            Promise => write(out, frame::PUSH_PROMISE, frame::END_HEADERS, next, &[0, 0, 0, 2]),
            ResetIdleStream => frame::write_reset(out, next, 8),
            Padding => write(out, HEADERS, frame::PADDED, next, &[9, 0, 0]),
            Pings => (0..300).for_each(|_| write(out, PING, 0, 0, &[7; 8])),
            EmptyFrames => {
                (0..8000).for_each(|_| write(out, SETTINGS, frame::ACK, 0, &[]));
            }
        }
    }
}

/// An error in a request, which ends its stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malformation {
    /// A name with upper-case letters.
    UpperCase,
    /// A field of the connection.
    Connection,
    /// No path.
    NoPath,
    /// Two methods.
    TwoMethods,
    /// A status in a request.
    Status,
    /// A pseudo-header field after another field.
    Order,
    /// A line break in a value.
    LineBreak,
    /// A transfer coding other than trailers.
    TransferCoding,
    /// A length that is not that of the content.
    Length,
    /// An empty path.
    EmptyPath,
}

/// All errors in requests.
pub(super) const MALFORMATIONS: [Malformation; 10] = [
    Malformation::UpperCase,
    Malformation::Connection,
    Malformation::NoPath,
    Malformation::TwoMethods,
    Malformation::Status,
    Malformation::Order,
    Malformation::LineBreak,
    Malformation::TransferCoding,
    Malformation::Length,
    Malformation::EmptyPath,
];

impl Malformation {
    /// Puts the error into a request.
    pub(super) fn apply(self, message: &mut Message) {
        let Message { fields, content, .. } = message;
        let mut add = |name: &str, value: &str| fields.push((name.to_owned(), value.to_owned()));
        match self {
            Malformation::UpperCase => add("X-Upper", "a"),
            Malformation::Connection => add("connection", "keep-alive"),
            Malformation::NoPath => fields.retain(|(name, _)| name != ":path"),
            Malformation::TwoMethods => fields.insert(0, (":method".to_owned(), "GET".to_owned())),
            Malformation::Status => fields.insert(0, (":status".to_owned(), "200".to_owned())),
            Malformation::Order => {
                let first = fields.remove(0);
                fields.push(("x-first".to_owned(), "a".to_owned()));
                fields.push(first);
            }
            Malformation::LineBreak => add("x-break", "a\r\nb: c"),
            Malformation::TransferCoding => add("te", "gzip"),
            Malformation::Length => {
                fields.retain(|(name, _)| name != "content-length");
                fields.push(("content-length".to_owned(), (content.len() + 1).to_string()));
            }
            Malformation::EmptyPath => {
                let paths = fields.iter_mut().filter(|(name, _)| name == ":path");
                paths.for_each(|(_, path)| path.clear());
            }
        }
    }
}
