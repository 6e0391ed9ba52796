//! Rounds over HTTP/2: all requests of a connection leave in one write.

use std::mem;

use hearken::timer::Time;
use hearken_http::h2::{Event, HeadBuffer};

use super::peer::{PassError, Peer};
use crate::connection::Request;
use crate::failure::Failure;
use crate::http2::{Streams, WaitingRequest};
use crate::reply::CompleteReply;
use crate::workload::Workload;

/// The only message of the workload.
const MESSAGE: u32 = 0;

impl Peer {
    pub(super) fn is_http2(&self) -> bool {
        self.streams.is_some()
    }

    /// Begins HTTP/2, and waits for the settings of the server. Returns the numbers of bytes sent and
    /// received.
    pub(super) fn begin_http2(
        &mut self,
        streams: Box<Streams>,
        buffer: &mut [u8],
    ) -> Result<(usize, usize), PassError> {
        self.streams = Some(streams);
        let (mut sent, mut received) = (self.write_frames()?, 0);
        while self.streams.as_ref().is_some_and(|streams| !streams.has_settings()) {
            let count = self.receive(buffer, true)?.unwrap_or(0);
            received += count;
            self.process(buffer.get(..count).unwrap_or_default(), |_| Ok(()))?;
            sent += self.write_frames()?;
            if self.closed_by_server {
                let text = "the server closed a connection before its HTTP/2 settings; omit --http2 \
                            if it does not support it";
                return Err(PassError { failure: Failure::ConnReset, message: text.to_owned() });
            }
        }
        Ok((sent, received))
    }

    pub(super) fn send_on_streams(
        &mut self,
        count: usize,
        workload: &Workload,
    ) -> Result<usize, PassError> {
        let Some(streams) = &mut self.streams else { return Ok(0) };
        let now = Time::from_nanos(0);
        let request = Request { scheduled: now, sent: now, message: MESSAGE };
        for sent in 0..count {
            let bytes = &workload.message(MESSAGE).bytes;
            let waiting = WaitingRequest::new(request, now);
            if !streams.is_free() || !streams.send(waiting, bytes, workload) {
                return Err(PassError::reply(format!(
                    "the server permits {sent} streams at a time; set --streams {sent}"
                )));
            }
        }
        self.write_frames()
    }

    /// Processes received frames and calls `replied` for each complete reply. Returns the number of bytes
    /// sent in return.
    pub(super) fn on_frames(
        &mut self,
        bytes: &[u8],
        workload: &Workload,
        replied: impl FnMut(CompleteReply) -> Result<(), PassError>,
    ) -> Result<usize, PassError> {
        self.process(bytes, replied)?;
        if let Some(streams) = &mut self.streams {
            streams.send_content(workload);
        }
        self.write_frames()
    }

    fn process(
        &mut self,
        mut bytes: &[u8],
        mut replied: impl FnMut(CompleteReply) -> Result<(), PassError>,
    ) -> Result<(), PassError> {
        if bytes.is_empty() {
            self.closed_by_server = true;
            return match self.outstanding {
                0 => Ok(()),
                _ => {
                    let text = "the server closed a connection before its replies were complete";
                    Err(PassError { failure: Failure::ConnReset, message: text.to_owned() })
                }
            };
        }
        let mut head = HeadBuffer::new();
        let Some(streams) = &mut self.streams else { return Ok(()) };
        loop {
            let event = streams.connection.receive(&mut bytes, &mut head, &mut streams.out);
            let event =
                event.map_err(|error| PassError::reply(format!("invalid HTTP/2: {error}")))?;
            let Some(event) = event else { break };
            if let Event::Goaway { .. } = event {
                self.connection_close = true;
            }
            if let Event::Reset { code, .. } = event {
                return Err(PassError::reply(format!("the server reset a stream with {code}")));
            }
            if let Some(ended) = streams.on_event(&event) {
                self.outstanding -= 1;
                replied(ended.reply)?;
            }
        }
        Ok(())
    }

    /// Writes the frames that wait. Returns the number of bytes.
    fn write_frames(&mut self) -> Result<usize, PassError> {
        let Some(streams) = &mut self.streams else { return Ok(0) };
        let mut out = mem::take(&mut streams.out);
        let count = out.len();
        if count > 0 {
            self.write(&out)?;
        }
        out.clear();
        if let Some(streams) = &mut self.streams {
            streams.connection.output_sent();
            streams.out = out;
        }
        Ok(count)
    }
}
