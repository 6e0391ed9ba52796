//! The drawn behaviour of a client on a connection.

use std::time::Duration;

use hearken::io::sim::World;

use super::attack::{ATTACKS, Attack, MALFORMATIONS, Malformation};
use super::frame::{INITIAL_MAX_PAYLOAD, INITIAL_WINDOW};
use crate::client::{ClientSettings, End};

/// The time at which a client increases windows for the content that it has received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Release {
    AtOnce,
    /// Once half of the window is used.
    Half,
    /// After a pause.
    Late(Duration),
}

/// The behaviour of a client on one connection.
#[derive(Debug)]
pub(super) struct Behaviour {
    pub(super) requests: u16,
    /// Maximum number of open streams.
    pub(super) depth: usize,
    /// Maximum size of a piece that is sent, or 0 to send everything at once.
    pub(super) piece: u32,
    pub(super) piece_delay: Duration,
    /// Pause before a request.
    pub(super) think_time: Duration,
    /// Initial window of streams.
    pub(super) window: u32,
    /// Maximum length of a received payload.
    pub(super) max_payload: u32,
    /// Maximum size of the dynamic table for the fields of responses.
    pub(super) table: u32,
    /// Maximum length of the content of a sent frame.
    pub(super) content: usize,
    /// Maximum length of padding.
    pub(super) padding: u8,
    /// Length of the pieces of field blocks, or 0 for whole ones.
    pub(super) block: usize,
    pub(super) release: Release,
    /// Probability of a frame without a purpose, in thousandths.
    pub(super) noise: u32,
    /// Whether no stream is opened after GOAWAY.
    pub(super) heeds_goaway: bool,
    /// Probability in thousandths to cancel a request.
    pub(super) cancels: u32,
    /// Probability in thousandths of an error in a request.
    pub(super) malformations: u32,
    /// The violation before the request with a number.
    pub(super) attack: Option<(u16, Attack)>,
    /// Whether limits on streams are exceeded.
    pub(super) is_flooding: bool,
    /// Whether GOAWAY is sent after the last request.
    pub(super) says_goaway: bool,
    /// Probability in thousandths to pause receiving, and the length of the pause.
    pub(super) pauses: (u32, Duration),
    pub(super) end: End,
    /// Number of bytes after which the client stops to send, and what it does then.
    pub(super) cut: Option<(u64, End)>,
    /// Number of received bytes after which the client leaves.
    pub(super) quit: Option<(u64, End)>,
}

fn draw<T: Copy>(world: &World, values: &[T]) -> T {
    values[world.decide(values.len() as u32) as usize]
}

/// Number of streams that exceeds the limits of servers.
const FLOOD: u16 = 260;

impl Behaviour {
    pub(super) fn draw(world: &World, settings: &ClientSettings) -> Behaviour {
        let pause = || settings.draw_pause(world);
        let requests = 1 + world.decide(u32::from(settings.max_requests) * 2) as u16;
        let piece = draw(world, &[0, 0, 0, 0, 1000, 100, 20, 1]);
        let is_long = draw(world, &[false, false, false, true]);
        let piece_delay = if piece == 0 || !is_long { Duration::ZERO } else { pause() / 8 };
        let mut behaviour = Behaviour {
            requests,
            depth: draw(world, &[4, 1, 2, 16]),
            piece,
            piece_delay,
            think_time: draw(world, &[Duration::ZERO, pause()]),
            window: draw(world, &[INITIAL_WINDOW, INITIAL_WINDOW, 1 << 20, 1000, 1, 0]),
            max_payload: draw(world, &[INITIAL_MAX_PAYLOAD, INITIAL_MAX_PAYLOAD, 100_000]),
            table: draw(world, &[4096, 4096, 0, 100]),
            content: draw(world, &[16_384, 16_384, 1000, 10]),
            padding: draw(world, &[0, 0, 0, 255]),
            block: draw(world, &[0, 0, 0, 30]),
            release: draw(world, &[Release::AtOnce, Release::Half]),
            noise: draw(world, &[0, 0, 20, 200]),
            heeds_goaway: draw(world, &[true, true, false]),
            cancels: 0,
            malformations: 0,
            attack: None,
            is_flooding: false,
            says_goaway: draw(world, &[false, false, false, true]),
            pauses: (0, Duration::ZERO),
            end: draw(world, &[End::Close, End::Wait, End::HalfClose]),
            cut: None,
            quit: None,
        };
        if settings.misbehave {
            let ends = [End::Abort, End::Close, End::HalfClose, End::Wait];
            let bytes = || u64::from(world.decide(draw(world, &[64, 256, 4096, 65_536])));
            match world.decide(12) {
                4 => behaviour.cut = Some((bytes(), draw(world, &ends))),
                5 => behaviour.quit = Some((bytes(), draw(world, &ends[..2]))),
                6 => {
                    let pause = pause() * draw(world, &[1, 8]);
                    behaviour.pauses = (draw(world, &[10, 100, 500]), pause);
                }
                7 => behaviour.requests = 0,
                8 => behaviour.cancels = draw(world, &[100, 500, 1000]),
                9 => behaviour.malformations = draw(world, &[100, 500, 1000]),
                10 => {
                    let request = world.decide(behaviour.requests.into()) as u16;
                    behaviour.attack = Some((request, draw(world, &ATTACKS)));
                }
                11 => match world.decide(8) {
                    7 => {
                        behaviour.is_flooding = true;
                        behaviour.requests = FLOOD;
                        behaviour.depth = usize::from(FLOOD);
                        behaviour.cancels = draw(world, &[0, 1000]);
                        behaviour.think_time = Duration::ZERO;
                    }
                    _ => behaviour.release = Release::Late(pause() * draw(world, &[1, 8])),
                },
                _ => {}
            }
        }
        behaviour
    }

    /// Draws an error of the next request.
    pub(super) fn draw_malformation(&self, world: &World) -> Option<Malformation> {
        chance(world, self.malformations).then(|| draw(world, &MALFORMATIONS))
    }
}

/// Decides an event that has a probability of `per_mille` thousandths.
pub(super) fn chance(world: &World, per_mille: u32) -> bool {
    per_mille > 0 && world.decide(1000) >= 1000 - per_mille.min(1000)
}
