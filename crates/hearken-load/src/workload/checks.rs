//! Checks of replies.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use super::serde_str::impl_serde_str;

/// The checks of a reply, as text: `status=200`, `status=2xx|304`, `status=200..299`, `length=N` (of the
/// content) and `sha256=HEX`, separated by commas.
///
/// For replies to HEAD, only the status is checked, because they have no content.
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
    /// First and last status of each range. Empty without a check of the status.
    status: Vec<(u16, u16)>,
    length: Option<u64>,
    sha256: Option<[u8; 32]>,
}

/// The check that a reply failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FailedCheck<'a> {
    Status { expected: StatusRanges<'a>, found: u16 },
    Length { expected: u64, found: u64 },
    Hash,
}

impl fmt::Display for FailedCheck<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FailedCheck::Status { expected, found } => {
                write!(f, "expected status {expected}, found {found}")
            }
            FailedCheck::Length { expected, found } => {
                write!(f, "expected {expected} bytes of content, found {found}")
            }
            FailedCheck::Hash => f.write_str("unexpected SHA-256 digest"),
        }
    }
}

/// First and last status of each range, displayed as in the text of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StatusRanges<'a>(&'a [(u16, u16)]);

impl fmt::Display for StatusRanges<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, &(first, last)) in self.0.iter().enumerate() {
            let separator = if index > 0 { "|" } else { "" };
            match first == last {
                true => write!(f, "{separator}{first}")?,
                false => write!(f, "{separator}{first}..{last}")?,
            }
        }
        Ok(())
    }
}

impl Expect {
    /// Creates a check for status 200 and this content length.
    pub(super) fn for_file(length: u64) -> Expect {
        Expect { status: vec![(200, 200)], length: Some(length), sha256: None }
    }

    /// Returns these checks, with missing ones taken from `common`.
    pub(super) fn with_defaults(&self, common: &Expect) -> Expect {
        let status = if self.status.is_empty() { &common.status } else { &self.status };
        Expect {
            status: status.clone(),
            length: self.length.or(common.length),
            sha256: self.sha256.or(common.sha256),
        }
    }

    /// Returns only the checks that apply to replies to HEAD.
    pub(super) fn without_content(self) -> Expect {
        Expect { length: None, sha256: None, ..self }
    }

    /// Returns whether the status is checked.
    pub(crate) fn checks_status(&self) -> bool {
        !self.status.is_empty()
    }

    /// Returns whether there is any check.
    pub(super) fn has_checks(&self) -> bool {
        *self != Expect::default()
    }

    /// Returns whether the content must be hashed.
    pub(crate) fn hashes(&self) -> bool {
        self.sha256.is_some()
    }
}

/// The state of checking one reply.
#[derive(Clone, Debug)]
pub(crate) struct ReplyCheck {
    length: u64,
    hash: Option<Sha256>,
}

impl ReplyCheck {
    pub(crate) fn new(expect: &Expect) -> ReplyCheck {
        ReplyCheck { length: 0, hash: expect.hashes().then(Sha256::new) }
    }

    /// Adds the next bytes of the content.
    pub(crate) fn update(&mut self, content: &[u8]) {
        self.length += content.len() as u64;
        if let Some(hash) = &mut self.hash {
            hash.update(content);
        }
    }

    /// Completes the check at the end of the reply. Fails with the first failed check.
    pub(crate) fn finish(self, expect: &Expect, status: u16) -> Result<(), FailedCheck<'_>> {
        let is_in_range = |&(first, last): &(u16, u16)| (first..=last).contains(&status);
        if !expect.status.is_empty() && !expect.status.iter().any(is_in_range) {
            let expected = StatusRanges(&expect.status);
            return Err(FailedCheck::Status { expected, found: status });
        }
        if let Some(expected) = expect.length.filter(|&length| length != self.length) {
            return Err(FailedCheck::Length { expected, found: self.length });
        }
        let (Some(expected), Some(hash)) = (expect.sha256, self.hash) else {
            return Ok(());
        };
        if hash.finalize()[..] == expected { Ok(()) } else { Err(FailedCheck::Hash) }
    }
}

impl FromStr for Expect {
    type Err = String;

    fn from_str(text: &str) -> Result<Expect, String> {
        let mut expect = Expect::default();
        for part in text.split(',') {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let is_repeated = match name {
                "status" => !expect.status.is_empty(),
                "length" => expect.length.is_some(),
                "sha256" => expect.sha256.is_some(),
                _ => {
                    return Err(format!(
                        "unknown check '{part}': expected 'status=200', 'status=2xx', \
                         'status=200..299', 'length=N' or 'sha256=HEX'"
                    ));
                }
            };
            if is_repeated {
                return Err(format!(
                    "repeated check '{name}'; write 'status=200|304' for alternatives"
                ));
            }
            match name {
                "status" => {
                    for range in value.split('|') {
                        expect.status.push(parse_statuses(range).ok_or_else(|| {
                            format!("invalid status '{range}': expected '200', '2xx' or '200..299'")
                        })?);
                    }
                }
                "length" => {
                    let length = value.parse();
                    expect.length = Some(
                        length.map_err(|_| format!("invalid length '{value}': expected bytes"))?,
                    );
                }
                _ => {
                    expect.sha256 = Some(parse_digest(value).ok_or_else(|| {
                        format!("invalid SHA-256 digest '{value}': expected 64 hexadecimal digits")
                    })?);
                }
            }
        }
        Ok(expect)
    }
}

fn parse_statuses(text: &str) -> Option<(u16, u16)> {
    let parse = |text: &str| {
        let status = text.parse().ok().filter(|status| (100..1000).contains(status));
        status.filter(|_| text.len() == 3)
    };
    if let Some(class) = text.strip_suffix("xx") {
        let first = parse(&format!("{class}00"))?;
        return Some((first, first + 99));
    }
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let (first, last) = (parse(first)?, parse(last)?);
    (first <= last).then_some((first, last))
}

fn parse_digest(text: &str) -> Option<[u8; 32]> {
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
        let mut comma = "";
        if !self.status.is_empty() {
            write!(f, "status={}", StatusRanges(&self.status))?;
            comma = ",";
        }
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

impl_serde_str!(Expect);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Expect, ReplyCheck};

    /// SHA-256 digest of "abc" (FIPS 180-2, appendix B.1).
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    /// Returns the failed check, or an empty text.
    fn check(expect: &str, status: u16, content: &[&str]) -> String {
        let expect: Expect = expect.parse().unwrap();
        let mut check = ReplyCheck::new(&expect);
        content.iter().for_each(|piece| check.update(piece.as_bytes()));
        check.finish(&expect, status).err().map(|failed| failed.to_string()).unwrap_or_default()
    }

    #[test]
    fn reports_the_failed_check() {
        for status in ["status=200", "status=2xx", "status=200..299", "status=500|200"] {
            assert_eq!(check(status, 200, &[]), "", "{status}");
            assert!(check(status, 304, &[]).ends_with(", found 304"), "{status}");
        }
        assert_eq!(check("status=2xx|304", 503, &[]), "expected status 200..299|304, found 503");
        assert_eq!(check("length=3", 404, &["a", "bc"]), "");
        assert_eq!(check("length=3", 404, &["ab"]), "expected 3 bytes of content, found 2");
        let hash = format!("status=200,length=3,sha256={}", ABC.to_uppercase());
        assert_eq!(check(&hash, 200, &["ab", "", "c"]), "");
        assert_eq!(check(&hash, 200, &["abd"]), "unexpected SHA-256 digest");
        assert_eq!(check(&hash, 200, &["abcd"]), "expected 3 bytes of content, found 4");
        assert_eq!(check(&hash, 500, &["abcd"]), "expected status 200, found 500");
    }

    #[test]
    fn rejects_invalid_checks() {
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
    fn specific_checks_override_common_ones() {
        let expect = |text: &str| text.parse::<Expect>().unwrap();
        let both = expect("status=404").with_defaults(&expect("status=200,length=5"));
        assert_eq!(both, expect("status=404,length=5"));
        assert!(!expect("length=5").without_content().has_checks());
    }

    proptest! {
        #[test]
        fn formatting_and_parsing_round_trips(
            status in prop::collection::vec((100..500u16, 500..1000u16), 0..4),
            length in any::<Option<u64>>(),
            sha256 in any::<Option<[u8; 32]>>(),
        ) {
            let expect = Expect { status, length, sha256 };
            prop_assume!(expect.has_checks());
            prop_assert_eq!(expect.to_string().parse(), Ok(expect));
        }

        #[test]
        fn parsing_never_panics(text in "(status=|length=|sha256=|[0-9x.|,])*|.*") {
            let _ = text.parse::<Expect>();
        }
    }
}
