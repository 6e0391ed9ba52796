//! Frames of the server, and their checks.

use hearken::timer::Time;

use super::client::{Block, Client, Clients};
use super::facts::{Goaway, StreamEnd};
use super::frame::{self, Frame, MAX_WINDOW};
use super::message::{Fields, response_head};
use crate::client::Script;

const STREAM_CLOSED: u32 = 5;
/// Maximum number of bytes of the fields of a response.
const MAX_FIELDS: usize = 64 * 1024;

impl<S: Script> Clients<'_, S> {
    /// Handles a frame.
    ///
    /// # Errors
    /// The server must not send it.
    pub(super) fn on_frame(
        &mut self,
        client: &mut Client<S::Request>,
        frame: &Frame,
        now: Time,
    ) -> Result<(), String> {
        if !client.facts.has_settings && frame.kind != frame::SETTINGS {
            return Err(format!("the first frame is not SETTINGS: {frame:?}"));
        }
        if client.block.is_some() && frame.kind != frame::CONTINUATION {
            return Err(format!("within a field block: {frame:?}"));
        }
        match frame.kind {
            frame::SETTINGS => on_settings(client, frame),
            frame::PING if frame.payload.len() != 8 || frame.stream != 0 => {
                Err(format!("invalid: {frame:?}"))
            }
            frame::PING => {
                if !frame.has(frame::ACK) {
                    frame::write(&mut client.out, frame::PING, frame::ACK, 0, &frame.payload);
                }
                Ok(())
            }
            frame::GOAWAY => {
                let (last, code) = (frame.number(0)? & 0x7fff_ffff, frame.number(4)?);
                if client.facts.goaway.is_some_and(|before| before.last < last) {
                    return Err(format!("GOAWAY with a higher stream: {last}"));
                }
                self.trace(client, || format!("receives GOAWAY: {last}, code {code}"));
                client.facts.goaway = Some(Goaway { last, code, at: now });
                Ok(())
            }
            frame::WINDOW_UPDATE => on_window_update(client, frame),
            frame::RST_STREAM => self.on_reset(client, frame, now),
            frame::HEADERS => {
                let mut payload = frame.unpadded()?;
                if frame.has(frame::WITH_PRIORITY) {
                    payload = payload.get(5..).unwrap_or_default();
                }
                let ends_stream = frame.has(frame::END_STREAM);
                let block = Block { stream: frame.stream, ends_stream, bytes: payload.to_vec() };
                self.on_block(client, block, frame.has(frame::END_HEADERS), now)
            }
            frame::CONTINUATION => {
                let Some(mut block) = client.block.take() else {
                    return Err("CONTINUATION without a field block".to_owned());
                };
                block.bytes.extend_from_slice(&frame.payload);
                if block.bytes.len() > MAX_FIELDS {
                    return Err("an endless field block".to_owned());
                }
                self.on_block(client, block, frame.has(frame::END_HEADERS), now)
            }
            frame::DATA => self.on_data(client, frame, now),
            _ => Err(format!("unexpected: {frame:?}")),
        }
    }

    fn on_block(
        &mut self,
        client: &mut Client<S::Request>,
        block: Block,
        is_complete: bool,
        now: Time,
    ) -> Result<(), String> {
        if !is_complete {
            client.block = Some(block);
            return Ok(());
        }
        let decoded = client.decoder.decode(&block.bytes);
        let decoded = decoded.map_err(|error| format!("invalid field block: {error:?}"))?;
        let text = |bytes: Vec<u8>| {
            String::from_utf8(bytes).map_err(|_| "a field that is not UTF-8".to_owned())
        };
        let fields: Result<Fields, String> =
            decoded.into_iter().map(|(name, value)| Ok((text(name)?, text(value)?))).collect();
        let Some(index) = receiver(client, block.stream)? else { return Ok(()) };
        let exchange = &mut client.record.exchanges[index];
        if exchange.head.is_some() {
            if !block.ends_stream {
                return Err("trailers that do not end the stream".to_owned());
            }
            return self.complete(client, index, now);
        }
        let head = response_head(fields?)?;
        if head.status < 200 {
            if block.ends_stream {
                return Err("an interim response that ends the stream".to_owned());
            }
            client.streams[index].hold = None;
            return Ok(());
        }
        let facts = client.facts.streams[index];
        exchange.head = Some(head);
        if facts.malformation.is_some() {
            let status = exchange.head.as_ref().map_or(0, |head| head.status);
            if !(400..=599).contains(&status) {
                return Err(format!("status {status} to a malformed request"));
            }
        } else {
            self.script.on_head(now, exchange)?;
        }
        match block.ends_stream {
            true => self.complete(client, index, now),
            false => Ok(()),
        }
    }

    fn on_data(
        &mut self,
        client: &mut Client<S::Request>,
        frame: &Frame,
        now: Time,
    ) -> Result<(), String> {
        let length = frame.payload.len() as u32;
        client.receive_window -= i64::from(length);
        client.unreleased += length;
        if client.receive_window < 0 {
            return Err(format!("{length} bytes exceed the window of the connection"));
        }
        let content = frame.unpadded()?;
        let Some(index) = receiver(client, frame.stream)? else {
            self.release(client);
            return Ok(());
        };
        let stream = &mut client.streams[index];
        stream.receive_window -= i64::from(length);
        stream.unreleased += length;
        if length > 0 && stream.receive_window < 0 {
            return Err(format!("{length} bytes exceed the window of the stream"));
        }
        let exchange = &mut client.record.exchanges[index];
        if exchange.head.is_none() {
            return Err("content before the head".to_owned());
        }
        if !exchange.planned.has_body && !content.is_empty() {
            return Err("content in a response to HEAD".to_owned());
        }
        let is_malformed = client.facts.streams[index].malformation.is_some();
        if !is_malformed && !content.is_empty() {
            self.script.on_body(exchange, content)?;
        }
        exchange.received += content.len() as u64;
        let received = exchange.received;
        if frame.has(frame::END_STREAM) {
            self.complete(client, index, now)?;
        } else if client.streams[index].cancel_after.is_some_and(|after| received > after) {
            let (id, code) =
                (client.facts.streams[index].id, [8, 0][self.world.decide(2) as usize]);
            frame::write_reset(&mut client.out, id, code);
            client.streams[index].is_sent = true;
            let facts = &mut client.facts.streams[index];
            (facts.end, facts.ended_at) = (StreamEnd::Cancelled, Some(now));
        }
        self.plan_release(client, index, now);
        Ok(())
    }

    /// Handles a complete response.
    fn complete(
        &mut self,
        client: &mut Client<S::Request>,
        index: usize,
        now: Time,
    ) -> Result<(), String> {
        client.streams[index].is_received = true;
        let facts = &mut client.facts.streams[index];
        (facts.end, facts.ended_at) = (StreamEnd::Complete, Some(now));
        let (id, is_malformed) = (facts.id, facts.malformation.is_some());
        let exchange = &mut client.record.exchanges[index];
        exchange.answered_at = Some(now);
        let Some(head) = &exchange.head else { return Err("the end of no response".to_owned()) };
        let (status, received) = (head.status, exchange.received);
        let has_body = exchange.planned.has_body && !matches!(status, 204 | 304);
        if let Some(length) = head.content_length()
            && has_body
            && length != received
        {
            return Err(format!("{received} bytes of content, but a Content-Length of {length}"));
        }
        if !is_malformed {
            self.script.on_complete(exchange)?;
        }
        let request = exchange.id;
        self.trace(client, || {
            format!("has response {status} to {request} on stream {id}, {received} B")
        });
        Ok(())
    }

    fn on_reset(
        &mut self,
        client: &mut Client<S::Request>,
        frame: &Frame,
        now: Time,
    ) -> Result<(), String> {
        let code = frame.number(0)?;
        let Some(index) = client.find(frame.stream) else {
            return match client.facts.attack {
                Some(_) => Ok(()),
                None => Err(format!("RST_STREAM for a stream that was not opened: {frame:?}")),
            };
        };
        self.trace(client, || format!("receives RST_STREAM: {}, code {code}", frame.stream));
        let stream = &mut client.streams[index];
        let was_sending = !stream.is_sent;
        // The request was incomplete at the server then, and the rest may be on its way.
        let was_stopped = std::mem::replace(&mut stream.is_stopped, true);
        (stream.is_sent, stream.hold) = (true, None);
        let facts = &mut client.facts.streams[index];
        match facts.end {
            StreamEnd::Open => {
                (facts.end, facts.ended_at) = (StreamEnd::Reset(code), Some(now));
                stream.is_received = true;
                Ok(())
            }
            // The server needs no more of the request, which may be on its way.
            StreamEnd::Complete if code == 0 || was_sending || facts.malformation.is_some() => {
                Ok(())
            }
            // Frames may meet on their way.
            StreamEnd::Cancelled => Ok(()),
            // The server remembers only some of the streams that it has reset.
            _ if code == STREAM_CLOSED && was_stopped => Ok(()),
            _ if client.facts.attack.is_some() => Ok(()),
            end => Err(format!("RST_STREAM with code {code} after {end:?}")),
        }
    }
}

/// Returns the index of the open stream to which a frame belongs, or `None` if the client has
/// cancelled it.
fn receiver<R>(client: &Client<R>, id: u32) -> Result<Option<usize>, String> {
    let Some(index) = client.find(id) else {
        if client.facts.attack.is_some() {
            return Ok(None);
        }
        return Err(format!("a frame on stream {id}, which was not opened"));
    };
    if client.facts.is_refused(index) {
        return Err(format!("a frame on stream {id}, which GOAWAY refused"));
    }
    match client.facts.streams[index].end {
        StreamEnd::Open => Ok(Some(index)),
        StreamEnd::Cancelled => Ok(None),
        end => Err(format!("a frame on stream {id} after its end: {end:?}")),
    }
}

fn on_settings<R>(client: &mut Client<R>, frame: &Frame) -> Result<(), String> {
    if frame.stream != 0 || !frame.payload.len().is_multiple_of(6) {
        return Err(format!("invalid: {frame:?}"));
    }
    if frame.has(frame::ACK) {
        client.on_acknowledged();
        return Ok(());
    }
    client.facts.has_settings = true;
    for setting in frame.payload.chunks_exact(6) {
        let id = u16::from_be_bytes([setting[0], setting[1]]);
        let value = u32::from_be_bytes([setting[2], setting[3], setting[4], setting[5]]);
        match id {
            frame::SETTINGS_INITIAL_WINDOW_SIZE => {
                let difference = i64::from(value) - i64::from(client.peer.window);
                client.peer.window = value;
                client.streams.iter_mut().for_each(|stream| stream.send_window += difference);
            }
            frame::SETTINGS_MAX_CONCURRENT_STREAMS => client.peer.max_streams = value,
            _ => {}
        }
    }
    frame::write(&mut client.out, frame::SETTINGS, frame::ACK, 0, &[]);
    Ok(())
}

fn on_window_update<R>(client: &mut Client<R>, frame: &Frame) -> Result<(), String> {
    let increment = frame.number(0)?;
    let window = match frame.stream {
        0 => &mut client.send_window,
        id => match client.find(id) {
            Some(index) => &mut client.streams[index].send_window,
            None if client.facts.attack.is_some() => return Ok(()),
            None => return Err(format!("WINDOW_UPDATE for an idle stream: {frame:?}")),
        },
    };
    *window += i64::from(increment);
    match increment > 0 && *window <= MAX_WINDOW {
        true => Ok(()),
        false => Err(format!("invalid increment: {frame:?}, window {window}")),
    }
}
