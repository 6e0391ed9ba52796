//! What a reply must be to count as right.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use super::as_text::as_text;

/// What is asked of replies, as text: `status=200`, `status=2xx|304`, `status=200..299`,
/// `length=N` (of the content) and `sha256=HEX`, several joined by commas.
///
/// Of a reply to HEAD only the status is looked at: it has no content.
///
/// ```
/// use hearken_load::Expect;
///
/// let expect: Expect = "status=2xx,length=5".parse()?;
/// assert_eq!(expect.to_string(), "status=200..299,length=5");
/// assert!("statut=200".parse::<Expect>().is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Expect {
    /// The first and the last of each range; empty for any.
    status: Vec<(u16, u16)>,
    length: Option<u64>,
    sha256: Option<[u8; 32]>,
}

/// What a reply failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unmet {
    Status,
    Length,
    Hash,
}

impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unmet::Status => "another status",
            Unmet::Length => "another length",
            Unmet::Hash => "another SHA-256 sum",
        })
    }
}

impl Expect {
    /// A reply with the status 200 and as much content.
    pub(super) fn file(length: u64) -> Expect {
        Expect { status: vec![(200, 200)], length: Some(length), sha256: None }
    }

    /// This, and what `common` asks besides.
    pub(super) fn with(&self, common: &Expect) -> Expect {
        let status = if self.status.is_empty() { &common.status } else { &self.status };
        Expect {
            status: status.clone(),
            length: self.length.or(common.length),
            sha256: self.sha256.or(common.sha256),
        }
    }

    /// What can be asked of a reply to HEAD.
    pub(super) fn without_content(self) -> Expect {
        Expect { length: None, sha256: None, ..self }
    }

    /// Whether anything at all.
    pub(super) fn asks(&self) -> bool {
        *self != Expect::default()
    }

    /// Whether content has to be looked at, and not only counted.
    pub(crate) fn hashes(&self) -> bool {
        self.sha256.is_some()
    }
}

/// A reply that is being checked.
#[derive(Clone, Debug)]
pub(crate) struct Check {
    length: u64,
    hash: Option<Sha256>,
}

impl Check {
    pub(crate) fn new(expect: &Expect) -> Check {
        Check { length: 0, hash: expect.hashes().then(Sha256::new) }
    }

    /// Takes the next bytes of the content.
    pub(crate) fn feed(&mut self, content: &[u8]) {
        self.length += content.len() as u64;
        if let Some(hash) = &mut self.hash {
            hash.update(content);
        }
    }

    /// The reply is complete: the first that it failed, if any.
    pub(crate) fn end(self, expect: &Expect, status: u16) -> Result<(), Unmet> {
        let of_range = |&(first, last): &(u16, u16)| (first..=last).contains(&status);
        if !expect.status.is_empty() && !expect.status.iter().any(of_range) {
            return Err(Unmet::Status);
        }
        if expect.length.is_some_and(|length| length != self.length) {
            return Err(Unmet::Length);
        }
        let (Some(expected), Some(hash)) = (expect.sha256, self.hash) else {
            return Ok(());
        };
        if hash.finalize()[..] == expected { Ok(()) } else { Err(Unmet::Hash) }
    }
}

impl FromStr for Expect {
    type Err = String;

    fn from_str(text: &str) -> Result<Expect, String> {
        let mut expect = Expect::default();
        for part in text.split(',') {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let twice = match name {
                "status" => !expect.status.is_empty(),
                "length" => expect.length.is_some(),
                "sha256" => expect.sha256.is_some(),
                _ => {
                    return Err(format!(
                        "unknown check \"{part}\"; write status=200, status=2xx, \
                         status=200..299, length=N or sha256=HEX"
                    ));
                }
            };
            if twice {
                return Err(format!("{name} is there twice; write status=200|304 for any of two"));
            }
            match name {
                "status" => {
                    for range in value.split('|') {
                        expect.status.push(statuses(range).ok_or_else(|| {
                            format!("\"{range}\" is no status; write 200, 2xx or 200..299")
                        })?);
                    }
                }
                "length" => {
                    let length = value.parse();
                    expect.length =
                        Some(length.map_err(|_| format!("\"{value}\" is no number of bytes"))?);
                }
                _ => {
                    expect.sha256 = Some(digest(value).ok_or_else(|| {
                        format!("\"{value}\" is no SHA-256 sum: those are 64 hexadecimal digits")
                    })?);
                }
            }
        }
        Ok(expect)
    }
}

fn statuses(text: &str) -> Option<(u16, u16)> {
    let one = |text: &str| {
        let status = text.parse().ok().filter(|status| (100..1000).contains(status));
        status.filter(|_| text.len() == 3)
    };
    if let Some(class) = text.strip_suffix("xx") {
        let first = one(&format!("{class}00"))?;
        return Some((first, first + 99));
    }
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let (first, last) = (one(first)?, one(last)?);
    (first <= last).then_some((first, last))
}

fn digest(text: &str) -> Option<[u8; 32]> {
    let digits: &[u8; 64] = text.as_bytes().try_into().ok()?;
    let mut digest = [0; 32];
    for (byte, pair) in digest.iter_mut().zip(digits.chunks_exact(2)) {
        let nibble = |digit: u8| char::from(digit).to_digit(16);
        *byte = (nibble(pair[0])? << 4 | nibble(pair[1])?) as u8;
    }
    Some(digest)
}

impl fmt::Display for Expect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = "status=";
        for &(first, last) in &self.status {
            match first == last {
                true => write!(f, "{before}{first}")?,
                false => write!(f, "{before}{first}..{last}")?,
            }
            before = "|";
        }
        let mut comma = if self.status.is_empty() { "" } else { "," };
        if let Some(length) = self.length {
            write!(f, "{comma}length={length}")?;
            comma = ",";
        }
        if let Some(digest) = self.sha256 {
            write!(f, "{comma}sha256=")?;
            for byte in digest {
                write!(f, "{byte:02x}")?;
            }
        }
        Ok(())
    }
}

as_text!(Expect);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Check, Expect, Unmet};

    /// Of "abc" (FIPS 180-2, appendix B.1).
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn check(expect: &str, status: u16, content: &[&str]) -> Result<(), Unmet> {
        let expect: Expect = expect.parse().unwrap();
        let mut check = Check::new(&expect);
        content.iter().for_each(|piece| check.feed(piece.as_bytes()));
        check.end(&expect, status)
    }

    #[test]
    fn says_which_check_failed() {
        for status in ["status=200", "status=2xx", "status=200..299", "status=500|200"] {
            assert_eq!(check(status, 200, &[]), Ok(()), "{status}");
            assert_eq!(check(status, 304, &[]), Err(Unmet::Status), "{status}");
        }
        assert_eq!(check("length=3", 404, &["a", "bc"]), Ok(()));
        assert_eq!(check("length=3", 404, &["ab"]), Err(Unmet::Length));
        let hash = format!("status=200,length=3,sha256={}", ABC.to_uppercase());
        assert_eq!(check(&hash, 200, &["ab", "", "c"]), Ok(()));
        assert_eq!(check(&hash, 200, &["abd"]), Err(Unmet::Hash));
        assert_eq!(check(&hash, 200, &["abcd"]), Err(Unmet::Length));
        assert_eq!(check(&hash, 500, &["abcd"]), Err(Unmet::Status));
    }

    #[test]
    fn refuses_what_it_does_not_know() {
        for text in [
            "",
            "200",
            "status",
            "status=",
            "status=99",
            "status=1000",
            "status=0200",
            "status=xx",
            "status=+20",
            "status=300..200",
            "status=200|",
            "status=200,status=300",
            "length=-1",
            "length=",
            "sha256=00",
            "body=x",
            "status=200,",
            "status=20é",
        ] {
            assert!(text.parse::<Expect>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_nearer_goes_before_the_common() {
        let expect = |text: &str| text.parse::<Expect>().unwrap();
        let both = expect("status=404").with(&expect("status=200,length=5"));
        assert_eq!(both, expect("status=404,length=5"));
        assert!(!expect("length=5").without_content().asks());
    }

    proptest! {
        #[test]
        fn what_is_shown_can_be_read(
            status in prop::collection::vec((100..500u16, 500..1000u16), 0..4),
            length in any::<Option<u64>>(),
            sha256 in any::<Option<[u8; 32]>>(),
        ) {
            let expect = Expect { status, length, sha256 };
            prop_assume!(expect.asks());
            prop_assert_eq!(expect.to_string().parse(), Ok(expect));
        }

        #[test]
        fn never_panics(text in "(status=|length=|sha256=|[0-9x.|,])*|.*") {
            let _ = text.parse::<Expect>();
        }
    }
}
