//! Keys of session tickets.
//!
//! A ticket contains the session, encrypted for this server, which stores nothing itself. A random
//! key changes at an interval. The previous key is still accepted, so a ticket is valid for one to
//! two intervals. Keys from a file change with the file: the first encrypts, and all decrypt.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, SystemTime};

use rustls::Error;
use rustls::crypto::SecureRandom;
use rustls::server::ProducesTickets;

#[cfg(feature = "aws-lc-rs")]
use aws_lc_rs::{aead, hkdf};
#[cfg(not(feature = "aws-lc-rs"))]
use ring::{aead, hkdf};

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
        Key::with_name(name, &secret)
    }

    /// Derives a key from a secret. Keys of different contexts do not accept each other's tickets.
    fn derive(secret: &[u8], context: &[u8]) -> Result<Arc<Key>, Error> {
        let mut derived = [0; NAME_LENGTH + KEY_LENGTH];
        hkdf::Salt::new(hkdf::HKDF_SHA256, b"hearken session tickets")
            .extract(secret)
            .expand(&[context], Length(derived.len()))
            .and_then(|key| key.fill(&mut derived))
            .map_err(|_| creation_error())?;
        let mut name = [0; NAME_LENGTH];
        let (first, secret) = derived.split_at(NAME_LENGTH);
        name.copy_from_slice(first);
        Key::with_name(name, secret)
    }

    fn with_name(name: [u8; NAME_LENGTH], secret: &[u8]) -> Result<Arc<Key>, Error> {
        let key = aead::UnboundKey::new(&aead::AES_256_GCM, secret);
        let key = key.map_err(|_| creation_error())?;
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

/// The length of a derived key in bytes.
struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

fn creation_error() -> Error {
    Error::General("cannot create a ticket key".to_owned())
}

/// The keys of session tickets, which all workers share.
pub(super) struct TicketKeys {
    keys: RwLock<Keys>,
    interval: Duration,
    random: &'static dyn SecureRandom,
}

struct Keys {
    current: Arc<Key>,
    /// Other keys that decrypt tickets.
    others: Vec<Arc<Key>>,
    /// The time at which the current key is replaced. `None` if the keys are from a file.
    expires: Option<SystemTime>,
}

impl Keys {
    fn random(interval: Duration, random: &dyn SecureRandom) -> Result<Keys, Error> {
        let expires = Some(SystemTime::now() + interval);
        Ok(Keys { current: Key::new(random)?, others: Vec::new(), expires })
    }
}

impl TicketKeys {
    /// Creates keys that change at an interval.
    pub(super) fn new(
        interval: Duration,
        random: &'static dyn SecureRandom,
    ) -> Result<TicketKeys, Error> {
        let keys = Keys::random(interval, random)?;
        Ok(TicketKeys { keys: RwLock::new(keys), interval, random })
    }

    /// Replaces all keys by random ones. Earlier tickets are no longer accepted.
    pub(super) fn replace(&self) -> Result<(), Error> {
        self.set(Keys::random(self.interval, self.random)?);
        Ok(())
    }

    /// Replaces all keys by those that are derived from secrets, at least one, and a context.
    pub(super) fn replace_by(&self, secrets: &[Vec<u8>], context: &[u8]) -> Result<(), Error> {
        let derived = secrets.iter().map(|secret| Key::derive(secret, context));
        let mut derived = derived.collect::<Result<Vec<_>, _>>()?.into_iter();
        let current = derived.next().ok_or_else(creation_error)?;
        self.set(Keys { current, others: derived.collect(), expires: None });
        Ok(())
    }

    fn set(&self, new: Keys) {
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = new;
    }

    /// Returns the keys that are valid at `now`.
    fn valid_at(&self, now: SystemTime) -> RwLockReadGuard<'_, Keys> {
        let read = || self.keys.read().unwrap_or_else(PoisonError::into_inner);
        let keys = read();
        if keys.expires.is_none_or(|expires| now < expires) {
            return keys;
        }
        drop(keys);
        // If there is no randomness, the key stays until the next attempt.
        if let Ok(new) = Key::new(self.random) {
            let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
            if let Some(expires) = keys.expires.filter(|expires| now >= *expires) {
                // The current key is too old if the server was idle for another interval.
                let is_recent = now < expires + self.interval;
                let current = std::mem::replace(&mut keys.current, new);
                keys.others = Vec::from_iter(is_recent.then_some(current));
                keys.expires = Some(now + self.interval);
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
        let mut keys = std::iter::once(&keys.current).chain(&keys.others);
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
    fn keys_of_a_file_are_shared_and_replaced() {
        let servers = [(); 2].map(|()| {
            TicketKeys::new(Duration::from_secs(10), crate::provider().secure_random).unwrap()
        });
        let [one, other] = &servers;
        let secrets = [vec![1; 32], vec![2; 80], vec![3; 32]];
        one.replace_by(&secrets[..2], b"context").unwrap();
        other.replace_by(&secrets[1..], b"context").unwrap();
        let later = SystemTime::now() + Duration::from_secs(1000);
        let [of_first, of_second] = [one, other].map(|keys| keys.encrypt_at(later, b"x").unwrap());
        assert_eq!(one.decrypt(&of_first).unwrap(), b"x");
        assert_eq!(one.decrypt(&of_second).unwrap(), b"x");
        assert_eq!(other.decrypt(&of_first), None);
        assert_eq!(other.decrypt_at(later, &of_second).unwrap(), b"x");
        other.replace_by(&secrets, b"other context").unwrap();
        assert_eq!(other.decrypt(&of_first), None);
        assert!(one.replace_by(&[], b"").is_err());
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
