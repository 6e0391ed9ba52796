//! Keys of session tickets.
//!
//! A ticket contains the session, encrypted for this server, which stores nothing itself. The key
//! changes at an interval. The previous key is still accepted, so a ticket is valid for one to two
//! intervals.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, SystemTime};

use rustls::Error;
use rustls::crypto::SecureRandom;
use rustls::server::ProducesTickets;

#[cfg(feature = "aws-lc-rs")]
use aws_lc_rs::aead;
#[cfg(not(feature = "aws-lc-rs"))]
use ring::aead;

const NAME_LENGTH: usize = 16;
const KEY_LENGTH: usize = 32;

/// A key with its name, which tickets begin with.
struct Key {
    name: [u8; NAME_LENGTH],
    key: aead::LessSafeKey,
}

impl Key {
    fn new(random: &dyn SecureRandom) -> Result<Arc<Key>, Error> {
        let (mut name, mut secret) = ([0; NAME_LENGTH], [0; KEY_LENGTH]);
        random.fill(&mut name)?;
        random.fill(&mut secret)?;
        let key = aead::UnboundKey::new(&aead::AES_256_GCM, &secret);
        let key = key.map_err(|_| Error::General("cannot create a ticket key".to_owned()))?;
        Ok(Arc::new(Key { name, key: aead::LessSafeKey::new(key) }))
    }

    fn encrypt(&self, random: &dyn SecureRandom, plain: &[u8]) -> Option<Vec<u8>> {
        let mut nonce = [0; aead::NONCE_LEN];
        random.fill(&mut nonce).ok()?;
        let mut sealed = plain.to_vec();
        let (unique, name) =
            (aead::Nonce::assume_unique_for_key(nonce), aead::Aad::from(self.name));
        self.key.seal_in_place_append_tag(unique, name, &mut sealed).ok()?;
        Some([&self.name[..], &nonce, &sealed].concat())
    }

    /// Decrypts a ticket without its name.
    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = ticket.split_first_chunk()?;
        let (nonce, name) =
            (aead::Nonce::assume_unique_for_key(*nonce), aead::Aad::from(self.name));
        let mut opened = sealed.to_vec();
        let length = self.key.open_in_place(nonce, name, &mut opened).ok()?.len();
        opened.truncate(length);
        Some(opened)
    }
}

/// The keys of session tickets, which all workers share.
pub(super) struct TicketKeys {
    keys: RwLock<Keys>,
    interval: Duration,
    random: &'static dyn SecureRandom,
}

struct Keys {
    current: Arc<Key>,
    previous: Option<Arc<Key>>,
    /// The time at which the current key is replaced.
    expires: SystemTime,
}

impl TicketKeys {
    /// Creates keys that change at an interval.
    pub(super) fn new(
        interval: Duration,
        random: &'static dyn SecureRandom,
    ) -> Result<TicketKeys, Error> {
        let keys = Keys {
            current: Key::new(random)?,
            previous: None,
            expires: SystemTime::now() + interval,
        };
        Ok(TicketKeys { keys: RwLock::new(keys), interval, random })
    }

    /// Replaces all keys. Earlier tickets are no longer accepted.
    pub(super) fn replace(&self) -> Result<(), Error> {
        let current = Key::new(self.random)?;
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        keys.current = current;
        keys.previous = None;
        Ok(())
    }

    /// Returns the keys that are valid at `now`.
    fn valid_at(&self, now: SystemTime) -> RwLockReadGuard<'_, Keys> {
        let read = || self.keys.read().unwrap_or_else(PoisonError::into_inner);
        let keys = read();
        if now < keys.expires {
            return keys;
        }
        drop(keys);
        // If there is no randomness, the key stays until the next attempt.
        if let Ok(new) = Key::new(self.random) {
            let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
            if now >= keys.expires {
                // The current key is too old if the server was idle for another interval.
                let is_recent = now < keys.expires + self.interval;
                let current = std::mem::replace(&mut keys.current, new);
                keys.previous = is_recent.then_some(current);
                keys.expires = now + self.interval;
            }
        }
        read()
    }

    fn encrypt_at(&self, now: SystemTime, plain: &[u8]) -> Option<Vec<u8>> {
        let key = Arc::clone(&self.valid_at(now).current);
        key.encrypt(self.random, plain)
    }

    fn decrypt_at(&self, now: SystemTime, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, sealed) = ticket.split_at_checked(NAME_LENGTH)?;
        let keys = self.valid_at(now);
        let mut keys = [Some(&keys.current), keys.previous.as_ref()].into_iter().flatten();
        keys.find(|key| key.name == name)?.decrypt(sealed)
    }
}

impl ProducesTickets for TicketKeys {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        // RFC 8446 allows seven days.
        self.interval.as_secs().min(7 * 86_400) as u32
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.encrypt_at(SystemTime::now(), plain)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.decrypt_at(SystemTime::now(), ticket)
    }
}

impl fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketKeys").field("interval", &self.interval).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_are_valid_for_one_to_two_intervals() {
        let hour = Duration::from_secs(3600);
        let keys = TicketKeys::new(hour, crate::provider().secure_random).unwrap();
        let start = SystemTime::now();
        let ticket = keys.encrypt_at(start, b"session").unwrap();
        assert_eq!(keys.decrypt_at(start, &ticket).unwrap(), b"session");
        let later = start + hour + hour / 2;
        assert_eq!(keys.decrypt_at(later, &ticket).unwrap(), b"session");
        let newer = keys.encrypt_at(later, b"newer").unwrap();
        assert_ne!(newer[..NAME_LENGTH], ticket[..NAME_LENGTH]);
        assert_eq!(keys.decrypt_at(later + hour, &ticket), None);
        assert_eq!(keys.decrypt_at(later + hour, &newer).unwrap(), b"newer");
        // After a long time without use, no key is left.
        assert_eq!(keys.decrypt_at(later + 10 * hour, &newer), None);
    }

    #[test]
    fn rejects_malformed_and_replaced_tickets() {
        let keys = TicketKeys::new(Duration::from_secs(10), crate::provider().secure_random);
        let keys = keys.unwrap();
        let ticket = keys.encrypt(b"session").unwrap();
        for length in 0..ticket.len() {
            assert_eq!(keys.decrypt(&ticket[..length]), None);
        }
        for index in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[index] ^= 1;
            assert_eq!(keys.decrypt(&changed), None);
        }
        keys.replace().unwrap();
        assert_eq!(keys.decrypt(&ticket), None);
    }
}
