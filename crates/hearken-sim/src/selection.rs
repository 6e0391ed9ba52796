//! The first decision of a history, which selects the implementation of `Io` under the programs, and the
//! protocols of clients.

use hearken::io::sim::Decisions;

use crate::io_level::IoLevelName;

/// The protocols that clients may use in addition to plain HTTP/1.1.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Protocols {
    /// Whether some clients use HTTP/2.
    pub http2: bool,
    /// Whether all clients use TLS.
    pub tls: bool,
}

/// Number of values of the first decision for each implementation of `Io`.
const VALUES: u8 = 64;

impl Protocols {
    /// All protocols, each with its text on the command line.
    pub const ALL: [(&str, Protocols); 4] = [
        ("http1", Protocols { http2: false, tls: false }),
        ("http2", Protocols { http2: true, tls: false }),
        ("http1-tls", Protocols { http2: false, tls: true }),
        ("http2-tls", Protocols { http2: true, tls: true }),
    ];

    /// Returns the protocols for a value below [`VALUES`]: a third with HTTP/2, a fifth with TLS.
    fn of_value(value: u8) -> Protocols {
        Protocols { http2: value % 3 == 2, tls: value / 3 % 5 == 4 }
    }

    /// Returns the first value that stands for the protocols.
    fn value(self) -> u8 {
        (0..VALUES).find(|value| Protocols::of_value(*value) == self).unwrap_or(0)
    }
}

/// A selected part of the first decision. Decisions select the rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Selection {
    /// The implementation of `Io` under the programs.
    pub level: Option<IoLevelName>,
    /// The protocols of clients.
    pub protocols: Option<Protocols>,
}

impl Selection {
    /// Makes the first decision of a history.
    pub(crate) fn draw(decisions: &mut Decisions) -> (IoLevelName, Protocols) {
        let decision = decisions.below(256) as u8;
        (IoLevelName::of_value(decision / VALUES), Protocols::of_value(decision % VALUES))
    }

    /// Returns the first decision of the history of a seed, unless the seed alone decides it.
    pub(crate) fn first_decision(self, seed: u64) -> Option<u8> {
        if self == Selection::default() {
            return None;
        }
        let random = (seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
        let level = self.level.map_or(random / VALUES, IoLevelName::value);
        let protocols = self.protocols.map_or(random % VALUES, Protocols::value);
        Some(level * VALUES + protocols)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_decisions_lead_to_the_selection() {
        for (_, level) in IoLevelName::ALL {
            for (_, protocols) in Protocols::ALL {
                let selection = Selection { level: Some(level), protocols: Some(protocols) };
                let first = selection.first_decision(7).unwrap();
                let drawn = Selection::draw(&mut Decisions::from_bytes(&[first]));
                assert_eq!(drawn, (level, protocols));
            }
        }
        assert_eq!(Selection::draw(&mut Decisions::from_bytes(&[])).1, Protocols::default());
    }

    #[test]
    fn a_third_of_histories_has_http2_and_a_fifth_tls() {
        let share = |has: fn(Protocols) -> bool| {
            (0..VALUES).filter(|value| has(Protocols::of_value(*value))).count()
        };
        assert!((20..=22).contains(&share(|it| it.http2)));
        assert!((11..=13).contains(&share(|it| it.tls)));
    }
}
