//! Runs HTTP/2 clients: state machines over one `Io`.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::time::Duration;

use hearken::Token;
use hearken::io::sim::World;
use hearken::io::{Completion, CompletionKind, Io};
use hearken::timer::Time;
use loona_hpack::{Decoder, Encoder};

use super::behaviour::{Behaviour, Release, chance};
use super::facts::{Http2Facts, StreamEnd, StreamFacts};
use super::frame::{self, FrameReader, INITIAL_MAX_PAYLOAD, INITIAL_WINDOW};
use super::message::{Fields, Message};
use crate::client::{
    ClientSettings, ConnectionRecord, End, Ended, Exchange, HttpVersion, MAX_PAUSED, Records,
    RequestId, Script, new_record,
};
use crate::connector::Connector;
use crate::report::Report;
use crate::scheduler::{Program, earlier};

/// Maximum time for which a client waits for 100 (Continue).
const MAX_HOLD: Duration = Duration::from_secs(1);
/// Maximum number of frames with the content of a request.
const MAX_CONTENT_FRAMES: usize = 50;
/// Maximum number of frames without a purpose on a connection.
const MAX_NOISE: u32 = 10;
/// Windows below this size grow after some increases, because each costs events.
const SMALL_WINDOW: u32 = 1000;
/// Number of increases after which small windows grow.
const SMALL_INCREASES: u32 = 8;

/// The state of a stream. The request and its response are in the exchange with the same index.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) content: Vec<u8>,
    pub(super) sent: usize,
    pub(super) trailers: Fields,
    /// Time until which the content waits for 100 (Continue).
    pub(super) hold: Option<Time>,
    pub(super) send_window: i64,
    pub(super) receive_window: i64,
    /// Number of received bytes by which the window was not increased.
    pub(super) unreleased: u32,
    pub(super) increases: u32,
    /// Whether the client's side has ended.
    pub(super) is_sent: bool,
    /// Whether the server reset the stream, which it does before it has the end of the request.
    pub(super) is_stopped: bool,
    /// Whether the server's side has ended.
    pub(super) is_received: bool,
    /// Number of received bytes after which the client cancels the request.
    pub(super) cancel_after: Option<u64>,
}

/// A field block that is not complete.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) stream: u32,
    pub(super) ends_stream: bool,
    pub(super) bytes: Vec<u8>,
}

pub(super) struct Client<R> {
    pub(super) number: u16,
    pub(super) connection: u16,
    connections_left: u16,
    pub(super) token: Option<Token>,
    pub(super) behaviour: Behaviour,
    pub(super) record: ConnectionRecord<R>,
    pub(super) facts: Http2Facts,
    pub(super) streams: Vec<Stream>,
    pub(super) reader: FrameReader,
    pub(super) decoder: Decoder<'static>,
    encoder: Encoder<'static>,
    /// The incomplete field block.
    pub(super) block: Option<Block>,
    /// Number of received bytes of the start of a response in HTTP/1.1.
    timeout_bytes: usize,
    planned: u16,
    next_id: u32,
    noise: u32,
    /// Frames to send.
    pub(super) out: Vec<u8>,
    position: usize,
    /// Number of bytes of the connection that were sent.
    pub(super) sent: u64,
    sends: usize,
    pub(super) received: u64,
    pub(super) send_window: i64,
    pub(super) receive_window: i64,
    pub(super) unreleased: u32,
    /// Initial windows of the SETTINGS frames that the server has not acknowledged.
    unacknowledged: VecDeque<u32>,
    /// Initial window of the SETTINGS frame that the server has acknowledged last.
    acknowledged: u32,
    /// Initial window that the server may use for new streams.
    window: u32,
    pub(super) peer: PeerSettings,
    has_stopped_sending: bool,
    has_failed: bool,
    connect_at: Option<Time>,
    send_at: Option<Time>,
    pub(super) release_at: Option<Time>,
    receive_at: Option<Time>,
    paused: Duration,
    progress_at: Time,
}

/// The settings of the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerSettings {
    pub(super) window: u32,
    pub(super) max_streams: u32,
}

impl Default for PeerSettings {
    fn default() -> PeerSettings {
        PeerSettings { window: INITIAL_WINDOW, max_streams: u32::MAX }
    }
}

impl<R> Client<R> {
    /// Returns the index of a stream.
    pub(super) fn find(&self, id: u32) -> Option<usize> {
        self.facts.streams.binary_search_by_key(&id, |stream| stream.id).ok()
    }

    fn open_streams(&self) -> usize {
        let streams = self.facts.streams.iter();
        streams.filter(|stream| stream.end == StreamEnd::Open).count()
    }
}

/// All HTTP/2 clients of a history.
pub(super) struct Clients<'y, S: Script> {
    pub(super) settings: ClientSettings,
    pub(super) script: S,
    pub(super) world: World,
    report: &'y Report,
    host: usize,
    connector: Connector,
    by_slot: Vec<Option<usize>>,
    records: Records<S::Request>,
}

/// Runs all clients until their connections have ended. Their numbers start at `first`.
pub(crate) fn run<S: Script>(
    program: Program<'_>,
    connector: Connector,
    first: u16,
    settings: ClientSettings,
    script: S,
    records: Records<S::Request>,
) {
    let world = program.host().world().clone();
    let mut io = program.io(connector.io(program.host()));
    let now = world.now();
    let mut all = Clients {
        script,
        world,
        report: program.report(),
        host: program.host().index(),
        connector,
        by_slot: Vec::new(),
        records,
        settings,
    };
    let mut clients: Vec<_> =
        (0..all.settings.clients).map(|number| all.create(first + number, now)).collect();
    loop {
        let now = io.now();
        let mut until: Option<Time> = None;
        for (index, client) in clients.iter_mut().enumerate() {
            all.act(&mut io, client, index, now);
            until = earlier(until, all.wake_at(client));
        }
        let Some(until) = until else { return };
        if io.wait(Some(until)).is_err() {
            return;
        }
        while let Some(completion) = io.next() {
            let slot = completion.token.slot() as usize;
            if let Some(index) = all.by_slot.get(slot).copied().flatten() {
                all.on_completion(&mut io, &mut clients[index], completion);
            }
        }
    }
}

impl<S: Script> Clients<'_, S> {
    fn create(&self, number: u16, now: Time) -> Client<S::Request> {
        let left = [0, 0, 1, 3][self.world.decide(4) as usize];
        let delay = self.settings.draw_pause(&self.world) / 2;
        self.begin(number, 0, left, now, now + delay)
    }

    /// Returns the state before a connection.
    fn begin(
        &self,
        number: u16,
        connection: u16,
        connections_left: u16,
        now: Time,
        connect_at: Time,
    ) -> Client<S::Request> {
        let behaviour = Behaviour::draw(&self.world, &self.settings);
        Client {
            number,
            connection,
            connections_left,
            token: None,
            record: new_record(number, connection, now),
            facts: Http2Facts { is_flooding: behaviour.is_flooding, ..Http2Facts::default() },
            behaviour,
            streams: Vec::new(),
            reader: FrameReader::default(),
            decoder: Decoder::new(),
            encoder: Encoder::new(),
            block: None,
            timeout_bytes: 0,
            planned: 0,
            next_id: 1,
            noise: 0,
            out: Vec::new(),
            position: 0,
            sent: 0,
            sends: 0,
            received: 0,
            send_window: INITIAL_WINDOW.into(),
            receive_window: INITIAL_WINDOW.into(),
            unreleased: 0,
            unacknowledged: VecDeque::new(),
            acknowledged: INITIAL_WINDOW,
            window: INITIAL_WINDOW,
            peer: PeerSettings::default(),
            has_stopped_sending: false,
            has_failed: false,
            connect_at: Some(connect_at),
            send_at: None,
            release_at: None,
            receive_at: None,
            paused: Duration::ZERO,
            progress_at: now,
        }
    }

    /// Returns the time at which a connection without progress is stuck.
    fn give_up_at(&self, client: &Client<S::Request>) -> Time {
        let paused =
            client.receive_at.unwrap_or_default().max(client.release_at.unwrap_or_default());
        paused.max(client.progress_at) + self.settings.patience
    }

    /// Returns the time at which a client acts without a completion. `None` after its end.
    fn wake_at(&self, client: &Client<S::Request>) -> Option<Time> {
        let patience = client.token.map(|_| self.give_up_at(client));
        let sends = earlier(client.connect_at, client.send_at);
        let receives = earlier(client.receive_at, client.release_at);
        let holds = client.streams.iter().filter_map(|stream| stream.hold).min();
        let holds = holds.filter(|_| client.token.is_some() && !client.has_stopped_sending);
        earlier(earlier(sends, receives), earlier(holds, patience))
    }

    pub(super) fn trace(&self, client: &Client<S::Request>, text: impl FnOnce() -> String) {
        let numbers = [30, client.number.into(), client.sent];
        self.world.record(self.host, numbers, || {
            format!("client {}-{} {}", client.number, client.connection, text())
        });
    }

    fn fail(&self, client: &Client<S::Request>, kind: &str, detail: impl std::fmt::Display) {
        let id = format!("client {}-{}", client.number, client.connection);
        self.report.fail(kind, format!("{id}: {detail}"));
    }

    fn act(&mut self, io: &mut impl Io, client: &mut Client<S::Request>, index: usize, now: Time) {
        let is_due = |at: &mut Option<Time>| at.take_if(|at| *at <= now).is_some();
        if is_due(&mut client.connect_at) {
            self.connect(io, client, index, now);
        }
        let Some(token) = client.token else { return };
        if is_due(&mut client.receive_at) {
            io.start(token);
            client.progress_at = now;
        }
        if is_due(&mut client.release_at) {
            self.release(client);
            client.progress_at = now;
            self.send(io, client, now);
        }
        let held = client.streams.iter_mut().filter(|it| it.hold.is_some_and(|at| at <= now));
        if held.map(|stream| stream.hold = None).count() > 0 {
            self.send(io, client, now);
        }
        if is_due(&mut client.send_at) {
            self.send(io, client, now);
        }
        if client.token.is_some() && now >= self.give_up_at(client) {
            let waited = self.settings.patience.as_secs_f64();
            let open = client.open_streams();
            let detail = format!("no progress for {waited} s, {open} requests without a response");
            self.fail(client, "stuck connection", detail);
            self.end(io, client, Ended::ByClient, now);
        }
    }

    fn connect(
        &mut self,
        io: &mut impl Io,
        client: &mut Client<S::Request>,
        index: usize,
        now: Time,
    ) {
        client.record.opened_at = now;
        client.progress_at = now;
        match self.connector.connect(io, &self.settings.server, HttpVersion::Http2) {
            Ok(token) => {
                let slot = token.slot() as usize;
                if slot >= self.by_slot.len() {
                    self.by_slot.resize(slot + 1, None);
                }
                self.by_slot[slot] = Some(index);
                client.token = Some(token);
                self.trace(client, || "connects with HTTP/2".to_owned());
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                client.connect_at = Some(now + Duration::from_millis(10));
            }
            Err(_) => self.end(io, client, Ended::NotConnected, now),
        }
    }

    fn on_completion(
        &mut self,
        io: &mut impl Io,
        client: &mut Client<S::Request>,
        Completion { token, kind }: Completion,
    ) {
        let now = io.now();
        client.progress_at = now;
        match kind {
            CompletionKind::Connected(Ok(())) => {
                client.record.connected_at = Some(now);
                self.write_preface(client);
                io.start(token);
                client.send_at = Some(now + client.behaviour.think_time);
            }
            CompletionKind::Connected(Err(_)) => self.end(io, client, Ended::NotConnected, now),
            CompletionKind::Received(bytes) => self.on_bytes(io, client, &bytes, now),
            CompletionKind::End => {
                let ended = if client.has_failed { Ended::Failed } else { Ended::ByServer };
                self.end(io, client, ended, now);
            }
            CompletionKind::ReceiveFailed(_) => self.end(io, client, Ended::Failed, now),
            CompletionKind::Sent(Err(_)) => {
                // Responses may still arrive, and then the end.
                (client.has_failed, client.has_stopped_sending) = (true, true);
                client.send_at = None;
            }
            CompletionKind::Sent(Ok(())) => {
                client.sends -= 1;
                if client.sends == 0 {
                    self.mark_taken(client, now);
                    self.continue_sending(io, client, now);
                }
            }
            _ => {}
        }
    }

    /// Writes the preface and the settings.
    fn write_preface(&mut self, client: &mut Client<S::Request>) {
        self.script.preamble(client.number, &mut client.out);
        client.out.extend_from_slice(frame::PREFACE);
        let Behaviour { window, max_payload, table, .. } = client.behaviour;
        let mut settings = Vec::new();
        if window != INITIAL_WINDOW {
            settings.push((frame::SETTINGS_INITIAL_WINDOW_SIZE, window));
        }
        if max_payload != INITIAL_MAX_PAYLOAD {
            settings.push((frame::SETTINGS_MAX_FRAME_SIZE, max_payload));
        }
        if table != 4096 {
            settings.push((frame::SETTINGS_HEADER_TABLE_SIZE, table));
            client.decoder.set_max_allowed_table_size(table as usize);
            client.decoder.set_max_table_size(table as usize);
        }
        frame::write_settings(&mut client.out, &settings);
        // The server knows it before the first request.
        client.acknowledged = window;
        client.announce_window(window);
        if window > INITIAL_WINDOW {
            frame::write_window_update(&mut client.out, 0, window);
            client.receive_window += i64::from(window);
        }
    }

    fn on_bytes(
        &mut self,
        io: &mut impl Io,
        client: &mut Client<S::Request>,
        bytes: &[u8],
        now: Time,
    ) {
        client.received += bytes.len() as u64;
        let is_first = !client.facts.has_settings && !client.reader.is_within_frame();
        if is_first && client.receives_timeout(bytes) {
            return;
        }
        client.reader.push(bytes);
        loop {
            let max = client.behaviour.max_payload;
            let handled = match client.reader.next(max) {
                Ok(None) => break,
                Ok(Some(frame)) => self.on_frame(client, &frame, now),
                Err(error) => Err(error),
            };
            if let Err(error) = handled {
                let detail = format!("{error}; {:?}, {:?}", client.facts, client.record);
                self.fail(client, "wrong frame", detail);
                return self.end(io, client, Ended::ByClient, now);
            }
        }
        if let Some((quit, then)) = client.behaviour.quit
            && client.received >= quit
        {
            return self.stop_sending(io, client, then, now);
        }
        self.pause(io, client, now);
        self.continue_sending(io, client, now);
    }

    /// Lets the client pause receiving.
    fn pause(&self, io: &mut impl Io, client: &mut Client<S::Request>, now: Time) {
        let (probability, pause) = client.behaviour.pauses;
        if !pause.is_zero()
            && client.receive_at.is_none()
            && client.paused + pause <= MAX_PAUSED
            && chance(&self.world, probability)
            && let Some(token) = client.token
        {
            io.stop(token);
            client.record.own.has_paused = true;
            client.receive_at = Some(now + pause);
            client.paused += pause;
        }
    }

    /// Sends the next piece, or lets the client pause before.
    fn continue_sending(&mut self, io: &mut impl Io, client: &mut Client<S::Request>, now: Time) {
        if client.token.is_none() || client.send_at.is_some() {
            return;
        }
        let is_between = client.position == client.out.len();
        let Behaviour { think_time, piece_delay, .. } = client.behaviour;
        let pause = if is_between { think_time } else { piece_delay };
        if pause.is_zero() {
            self.send(io, client, now);
        } else {
            client.send_at = Some(now + pause);
        }
    }

    /// Sends what the client may send now.
    fn send(&mut self, io: &mut impl Io, client: &mut Client<S::Request>, now: Time) {
        while let Some(token) = client.token
            && client.sends == 0
            && !client.has_stopped_sending
        {
            if client.position == client.out.len() {
                client.out.clear();
                client.position = 0;
                if !self.write_more(client, now) {
                    return self.finish_sending(io, client, now);
                }
            }
            let mut end = client.out.len();
            if client.behaviour.piece > 0 {
                let size = 1 + self.world.decide(client.behaviour.piece) as usize;
                end = end.min(client.position + size);
            }
            if let Some((cut, then)) = client.behaviour.cut {
                let base = client.sent - client.position as u64;
                end = end.min(cut.saturating_sub(base) as usize);
                if end <= client.position {
                    return self.stop_sending(io, client, then, now);
                }
            }
            let is_done = io.send_now(token, &client.out[client.position..end]);
            client.sent += (end - client.position) as u64;
            client.position = end;
            client.facts.sent_at = Some(now);
            for exchange in &mut client.record.exchanges {
                exchange.on_sent(client.sent, now);
            }
            if !is_done {
                client.sends += 1;
                return;
            }
            self.mark_taken(client, now);
            let delay = client.behaviour.piece_delay;
            if !delay.is_zero() {
                client.send_at = Some(now + delay);
                return;
            }
        }
    }

    /// Records that the transport has taken all sent bytes.
    fn mark_taken(&mut self, client: &mut Client<S::Request>, now: Time) {
        for exchange in &mut client.record.exchanges {
            if exchange.sent_at.is_some() && exchange.taken_at.is_none() {
                exchange.taken_at = Some(now);
                self.script.on_taken(now);
            }
        }
    }

    /// Writes further frames. Returns false if there are none at present.
    fn write_more(&mut self, client: &mut Client<S::Request>, now: Time) -> bool {
        if client.noise < MAX_NOISE && chance(&self.world, client.behaviour.noise) {
            client.noise += 1;
            self.write_noise(client);
        }
        let has_gone = client.behaviour.heeds_goaway && client.facts.goaway.is_some();
        let open = client.open_streams();
        let max_streams = match client.behaviour.is_flooding {
            true => usize::MAX,
            false => client.peer.max_streams as usize,
        };
        if client.planned < client.behaviour.requests
            && !has_gone
            && open < client.behaviour.depth.min(max_streams)
        {
            self.open_stream(client, now);
        } else {
            self.write_content(client);
        }
        !client.out.is_empty()
    }

    /// Writes a frame without a purpose.
    fn write_noise(&self, client: &mut Client<S::Request>) {
        let id = client.facts.streams.last().map_or(client.next_id, |stream| stream.id);
        let out = &mut client.out;
        match self.world.decide(7) {
            0 => frame::write(out, frame::PING, 0, 0, b"no reply"),
            1 => {
                let of = id + 2 * self.world.decide(2);
                let payload = [&of.to_be_bytes()[..], b"u=1, i"].concat();
                frame::write(out, frame::PRIORITY_UPDATE, 0, 0, &payload);
            }
            2 => frame::write(out, 0x63, 0xff, id, b"unknown"),
            3 => frame::write(out, frame::PRIORITY, 0, id + 2, &[0, 0, 0, 0, 7]),
            4 => {
                frame::write_window_update(out, 0, 1);
                client.receive_window += 1;
            }
            5 => {
                let windows = [INITIAL_WINDOW, 1, 2000, 1 << 20];
                let window = windows[self.world.decide(4) as usize];
                frame::write_settings(out, &[(frame::SETTINGS_INITIAL_WINDOW_SIZE, window)]);
                client.announce_window(window);
            }
            _ => {
                frame::write_settings(out, &[(0x99, 1)]);
                let window = client.unacknowledged.back().copied().unwrap_or(client.acknowledged);
                client.announce_window(window);
            }
        }
    }

    /// Opens a stream with the next request.
    fn open_stream(&mut self, client: &mut Client<S::Request>, now: Time) {
        let number = client.planned;
        if let Some((at, attack)) = client.behaviour.attack
            && at == number
        {
            let used = client.facts.streams.last().map(|stream| stream.id);
            attack.write(&mut client.out, client.next_id, used);
            client.facts.attack = Some((client.streams.len(), attack));
            self.trace(client, || format!("attacks: {attack:?}"));
        }
        client.planned += 1;
        let is_last = client.planned == client.behaviour.requests;
        let id = RequestId { client: client.number, connection: client.connection, number };
        let mut bytes = Vec::new();
        let planned = self.script.request(id, HttpVersion::Http2, is_last, &mut bytes);
        let mut message = Message::of_request(&bytes);
        let malformation = client.behaviour.draw_malformation(&self.world);
        if let Some(malformation) = malformation {
            malformation.apply(&mut message);
        } else if message.field("content-length").is_some() && self.world.decide(4) == 3 {
            message.fields.retain(|(name, _)| name != "content-length");
        }
        let is_sent = message.content.is_empty() && message.trailers.is_empty();
        let start = client.sent + client.out.len() as u64;
        let stream = client.next_id;
        client.next_id += 2 + 2 * self.world.decide(2);
        let fields = std::mem::take(&mut message.fields);
        self.write_fields(client, stream, &fields, is_sent);
        let hold = planned.expects.then(|| now + MAX_HOLD);
        let mut exchange = Exchange::new(id, planned, start, u64::MAX);
        let mut end = StreamEnd::Open;
        let mut is_reset = false;
        let cancels = chance(&self.world, client.behaviour.cancels);
        let mut cancel_after = None;
        if cancels {
            let limits = [0, 1, 500, 30_000];
            match self.world.decide(8) {
                0..4 => {
                    let code = [8, 0][self.world.decide(2) as usize];
                    frame::write_reset(&mut client.out, stream, code);
                    (end, is_reset) = (StreamEnd::Cancelled, true);
                }
                number => cancel_after = Some(limits[number as usize - 4]),
            }
        }
        if is_sent {
            exchange.end = client.sent + client.out.len() as u64;
            exchange.content_end = exchange.end;
        }
        if is_last && client.behaviour.says_goaway {
            // No stream may follow it.
            frame::write(&mut client.out, frame::GOAWAY, 0, 0, &[0; 8]);
            client.facts.has_said_goaway = true;
        }
        client.record.exchanges.push(exchange);
        let ended_at = is_reset.then_some(now);
        client.facts.streams.push(StreamFacts { id: stream, end, ended_at, malformation });
        let mut receive_window = i64::from(client.window);
        if receive_window == 0 && !is_reset {
            let window = 1 + self.world.decide(2000);
            frame::write_window_update(&mut client.out, stream, window);
            receive_window += i64::from(window);
        }
        client.streams.push(Stream {
            content: message.content,
            sent: 0,
            trailers: message.trailers,
            hold,
            send_window: client.peer.window.into(),
            receive_window,
            unreleased: 0,
            increases: 0,
            is_sent: is_sent || is_reset,
            is_stopped: false,
            is_received: false,
            cancel_after,
        });
        self.trace(client, || format!("opens stream {stream} for {id}"));
    }

    /// Writes a field block.
    fn write_fields(
        &self,
        client: &mut Client<S::Request>,
        stream: u32,
        fields: &[(String, String)],
        ends_stream: bool,
    ) {
        let pairs = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let mut block = client.encoder.encode(pairs);
        let ends = if ends_stream { frame::END_STREAM } else { 0 };
        let Behaviour { padding, block: piece, .. } = client.behaviour;
        let mut flags = ends;
        let first = if piece > 0 { piece.max(block.len() / 6) } else { block.len() };
        let rest = block.split_off(first.min(block.len()));
        if padding > 0 && self.world.decide(2) == 1 {
            block = [&[0, 0, 0, 0, 9][..], &block].concat();
            flags |= frame::WITH_PRIORITY;
        }
        let padding = if padding > 0 { self.world.decide(padding.into()) as u8 } else { 0 };
        let (padded, padded_flag) = frame::pad(&block, padding);
        flags |= padded_flag | if rest.is_empty() { frame::END_HEADERS } else { 0 };
        frame::write(&mut client.out, frame::HEADERS, flags, stream, &padded);
        let pieces = rest.chunks(first.max(1));
        let count = pieces.len();
        for (index, piece) in pieces.enumerate() {
            let flags = if index + 1 == count { frame::END_HEADERS } else { 0 };
            frame::write(&mut client.out, frame::CONTINUATION, flags, stream, piece);
        }
    }

    /// Writes content of one of the streams that may send some.
    fn write_content(&self, client: &mut Client<S::Request>) {
        let can_send = |stream: &Stream| {
            let needs_window = stream.sent < stream.content.len();
            let has_window = stream.send_window > 0 && client.send_window > 0;
            !stream.is_sent && stream.hold.is_none() && (!needs_window || has_window)
        };
        let ready: Vec<_> =
            (0..client.streams.len()).filter(|&index| can_send(&client.streams[index])).collect();
        if ready.is_empty() {
            return;
        }
        let index = ready[self.world.decide(ready.len() as u32) as usize];
        let id = client.facts.streams[index].id;
        let stream = &mut client.streams[index];
        let left = stream.content.len() - stream.sent;
        let window = stream.send_window.min(client.send_window).max(0) as usize;
        let max = client.behaviour.content.max(stream.content.len() / MAX_CONTENT_FRAMES);
        let mut length = left.min(window).min(max).min(INITIAL_MAX_PAYLOAD as usize);
        let mut padding = 0;
        if client.behaviour.padding > 0 && length + 256 < window {
            padding = self.world.decide(client.behaviour.padding.into()) as u8;
            length = length.min(INITIAL_MAX_PAYLOAD as usize - 256);
        }
        let content = &stream.content[stream.sent..stream.sent + length];
        let ends = length == left && stream.trailers.is_empty();
        let (payload, flag) = frame::pad(content, padding);
        let flags = flag | if ends { frame::END_STREAM } else { 0 };
        if left > 0 || ends {
            frame::write(&mut client.out, frame::DATA, flags, id, &payload);
            stream.send_window -= payload.len() as i64;
            client.send_window -= payload.len() as i64;
        }
        stream.sent += length;
        if length == left {
            stream.is_sent = true;
            // With Content-Length, a server may respond before the padding and the trailers.
            let after = if left > 0 || ends { padding.into() } else { 0 };
            let content_end = client.sent + client.out.len() as u64 - after;
            client.record.exchanges[index].content_end = content_end;
            let trailers = std::mem::take(&mut stream.trailers);
            if !ends {
                self.write_fields(client, id, &trailers, true);
            }
            client.record.exchanges[index].end = client.sent + client.out.len() as u64;
        }
    }

    /// Acts when nothing is left to send at present.
    fn finish_sending(&mut self, io: &mut impl Io, client: &mut Client<S::Request>, now: Time) {
        let has_gone = client.facts.goaway.is_some();
        let is_planned = client.planned >= client.behaviour.requests
            || (has_gone && client.behaviour.heeds_goaway);
        let is_sent = client.streams.iter().all(|stream| stream.is_sent);
        if !is_planned || !is_sent {
            return;
        }
        match client.behaviour.end {
            End::HalfClose => self.stop_sending(io, client, End::HalfClose, now),
            End::Close | End::Abort if client.open_streams() == 0 => {
                self.end(io, client, Ended::ByClient, now);
            }
            _ => {}
        }
    }

    fn stop_sending(
        &mut self,
        io: &mut impl Io,
        client: &mut Client<S::Request>,
        then: End,
        now: Time,
    ) {
        let Some(token) = client.token else { return };
        client.has_stopped_sending = true;
        client.record.own.has_stalled |= client.position < client.out.len();
        match then {
            End::HalfClose => {
                self.trace(client, || "half-closes".to_owned());
                client.record.own.has_half_closed = true;
                io.shutdown(token);
            }
            End::Close => {
                client.record.own.has_quit = true;
                self.end(io, client, Ended::ByClient, now);
            }
            End::Abort => {
                client.record.own.has_quit = true;
                io.abort(token);
                self.by_slot[token.slot() as usize] = None;
                client.token = None;
                self.end(io, client, Ended::ByClient, now);
            }
            End::Wait => self.trace(client, || "stops sending".to_owned()),
        }
    }

    /// Increases the windows by the content that was received.
    pub(super) fn release(&self, client: &mut Client<S::Request>) {
        let Client { out, streams, facts, unreleased, behaviour, .. } = client;
        let mut all = std::mem::take(unreleased);
        if all > 0 && behaviour.window < SMALL_WINDOW && client.received > 100_000 {
            all += 1000;
        }
        if all > 0 {
            frame::write_window_update(out, 0, all);
            client.receive_window += i64::from(all);
        }
        for (stream, facts) in streams.iter_mut().zip(&facts.streams) {
            let mut count = std::mem::take(&mut stream.unreleased);
            if stream.is_received || facts.end != StreamEnd::Open || count == 0 {
                continue;
            }
            stream.increases += 1;
            if stream.increases >= SMALL_INCREASES && stream.receive_window < SMALL_WINDOW.into() {
                count += INITIAL_WINDOW;
            }
            frame::write_window_update(out, facts.id, count);
            stream.receive_window += i64::from(count);
        }
    }

    /// Decides when to increase the windows after content was received.
    pub(super) fn plan_release(&self, client: &mut Client<S::Request>, index: usize, now: Time) {
        let stream = &client.streams[index];
        let is_half_used = i64::from(stream.unreleased) >= stream.receive_window
            || i64::from(client.unreleased) >= client.receive_window;
        match client.behaviour.release {
            Release::AtOnce => self.release(client),
            Release::Half if is_half_used => self.release(client),
            Release::Half => {}
            Release::Late(pause) if pause.is_zero() => self.release(client),
            Release::Late(pause) => {
                client.facts.has_closed_windows = true;
                client.release_at.get_or_insert(now + pause);
            }
        }
    }

    /// Ends the connection, and starts the next one.
    pub(super) fn end(
        &mut self,
        io: &mut impl Io,
        client: &mut Client<S::Request>,
        ended: Ended,
        now: Time,
    ) {
        if let Some(token) = client.token.take() {
            self.by_slot[token.slot() as usize] = None;
            io.close(token);
        }
        self.trace(client, || format!("ends: {ended:?}"));
        let (left, number) = (client.connections_left, client.connection + 1);
        let delay = match left {
            0 => Duration::ZERO,
            _ => self.settings.draw_pause(&self.world) / 2,
        };
        let next = self.begin(client.number, number, left.saturating_sub(1), now, now + delay);
        let before = std::mem::replace(client, next);
        if left == 0 {
            client.connect_at = None;
        }
        let mut record = before.record;
        (record.ended, record.ended_at) = (ended, now);
        record.is_cut = before.reader.is_within_frame() || before.block.is_some();
        record.answered = before.facts.complete();
        let has_unsent = before.position < before.out.len() || before.sends > 0;
        record.http2 = Some(Http2Facts { has_unsent, ..before.facts });
        self.records.borrow_mut().push(record);
    }
}

impl<R> Client<R> {
    /// Returns whether the server sends 408 in HTTP/1.1, because the preface has not arrived in time.
    fn receives_timeout(&mut self, bytes: &[u8]) -> bool {
        const TIMEOUT: &[u8] = b"HTTP/1.1 408";
        let rest = TIMEOUT.get(self.timeout_bytes..).unwrap_or_default();
        let count = rest.len().min(bytes.len());
        let is_timeout = rest[..count] == bytes[..count];
        self.timeout_bytes += if is_timeout { count } else { 0 };
        is_timeout
    }

    /// Handles that SETTINGS with an initial window were written.
    fn announce_window(&mut self, window: u32) {
        self.unacknowledged.push_back(window);
        self.update_window();
    }

    /// Handles the acknowledgement of SETTINGS.
    pub(super) fn on_acknowledged(&mut self) {
        if let Some(window) = self.unacknowledged.pop_front() {
            self.acknowledged = window;
            self.update_window();
        }
    }

    /// Updates the initial window that the server may use: one that the client announced last, or
    /// that before.
    fn update_window(&mut self) {
        let announced = self.unacknowledged.iter().copied().max();
        let window = self.acknowledged.max(announced.unwrap_or(0));
        let difference = i64::from(window) - i64::from(self.window);
        self.window = window;
        self.streams.iter_mut().for_each(|stream| stream.receive_window += difference);
    }
}
