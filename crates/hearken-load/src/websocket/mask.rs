//! Masks of frames from the random numbers of the load (RFC 6455 section 5.3). Those of `tungstenite`
//! do not depend on the seed.

/// Size of a mask in bytes.
const MASK_SIZE: usize = 4;

/// Replaces the masks of `frames`, which are complete.
pub(super) fn replace_masks(mut frames: &mut [u8], random: &mut fastrand::Rng) {
    while let Some((head_len, payload_len)) = measure(frames) {
        let (frame, rest) = frames.split_at_mut(head_len + MASK_SIZE + payload_len);
        let (mask, payload) = frame[head_len..].split_at_mut(MASK_SIZE);
        let new = random.u32(..).to_le_bytes();
        let change: [u8; MASK_SIZE] = std::array::from_fn(|at| mask[at] ^ new[at]);
        mask.copy_from_slice(&new);
        for piece in payload.chunks_mut(MASK_SIZE) {
            piece.iter_mut().zip(change).for_each(|(byte, change)| *byte ^= change);
        }
        frames = rest;
    }
}

/// Returns the length of the head of the first frame up to its mask, and the length of its payload.
/// Returns `None` if there is no complete frame with a mask.
fn measure(frames: &[u8]) -> Option<(usize, usize)> {
    let second = *frames.get(1)?;
    let (head_len, payload_len) = match second & 0x7F {
        126 => (4, u16::from_be_bytes(*frames.get(2..)?.first_chunk()?).into()),
        127 => (10, u64::from_be_bytes(*frames.get(2..)?.first_chunk()?)),
        length => (2, length.into()),
    };
    let payload_len = usize::try_from(payload_len).ok()?;
    let is_complete = frames.len().saturating_sub(head_len + MASK_SIZE) >= payload_len
        && frames.len() >= head_len + MASK_SIZE;
    (second & 0x80 != 0 && is_complete).then_some((head_len, payload_len))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tungstenite::Message;
    use tungstenite::protocol::{Role, WebSocketContext};

    use super::replace_masks;

    /// Encodes messages as a client does, and replaces their masks.
    fn encode(messages: &[Vec<u8>], seed: u64) -> Vec<u8> {
        let mut client = WebSocketContext::new(Role::Client, None);
        let mut bytes = std::io::Cursor::new(Vec::new());
        for message in messages {
            client.write(&mut bytes, Message::binary(message.clone())).unwrap();
        }
        client.flush(&mut bytes).unwrap();
        let mut bytes = bytes.into_inner();
        replace_masks(&mut bytes, &mut fastrand::Rng::with_seed(seed));
        bytes
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn masks_depend_on_the_seed_alone(
            sizes in prop::collection::vec(prop_oneof![0..200usize, 65_500..65_600usize], 1..4),
            seed: u64,
        ) {
            let messages: Vec<_> = sizes.iter().map(|&size| vec![b'a'; size]).collect();
            let bytes = encode(&messages, seed);
            prop_assert_eq!(&bytes, &encode(&messages, seed));
            let mut stream = std::io::Cursor::new(bytes);
            let mut server = WebSocketContext::new(Role::Server, None);
            for message in messages {
                let received = server.read(&mut stream).unwrap();
                prop_assert_eq!(received, Message::binary(message));
            }
        }

        #[test]
        fn other_bytes_do_not_cause_a_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            replace_masks(&mut bytes, &mut fastrand::Rng::with_seed(1));
        }
    }
}
