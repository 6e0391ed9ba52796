//! Relays between streams.

use std::io::ErrorKind;
use std::time::Duration;

use hearken::io::{Relay, RelayEnd};
use hearken::task::{self, TcpListener, TcpStream};

use crate::Case;
use crate::net::{LONG, expect, loopback, pair_of, pattern, poll_once, receive_all, run};

/// A relay and its ends: what `source` sends arrives at `sink`.
struct Hop {
    source: TcpStream,
    from: TcpStream,
    to: TcpStream,
    sink: TcpStream,
}

async fn hop() -> Hop {
    let listener = TcpListener::bind(loopback()).unwrap();
    let (source, from) = pair_of(&listener).await;
    let (to, sink) = pair_of(&listener).await;
    Hop { source, from, to, sink }
}

/// Checks two relays between the same streams, with many bytes and the end.
pub(crate) fn relays_both_ways<I: Relay + 'static>(case: &Case<'_, I>) {
    run(case, async {
        let Hop { source, from, to, sink } = hop().await;
        let (from_clone, to_clone) = (from.clone(), to.clone());
        let forward = task::spawn(async move { from_clone.relay_to(&to_clone, u64::MAX).await });
        let back = task::spawn(async move { to.relay_to(&from, u64::MAX).await });
        let bytes = pattern(LONG);
        let senders = [(source.clone(), bytes.clone()), (sink.clone(), bytes[..1000].to_vec())];
        for (sender, bytes) in senders {
            drop(task::spawn(async move {
                sender.write_all(&bytes).await.unwrap();
                sender.shutdown().await.unwrap();
            }));
        }
        expect(&source, &bytes[..1000]).await;
        expect(&sink, &bytes).await;
        for (relay, length) in [(forward, LONG), (back, 1000)] {
            let relayed = relay.await.unwrap();
            assert_eq!(relayed.moved, length as u64);
            assert!(matches!(relayed.ended, RelayEnd::End), "{relayed:?}");
        }
    });
}

/// Checks that bytes after the maximum remain in the stream.
pub(crate) fn relays_up_to_a_maximum<I: Relay + 'static>(case: &Case<'_, I>) {
    run(case, async {
        let Hop { source, from, to, sink } = hop().await;
        source.write_all(&pattern(1000)).await.unwrap();
        for max in [0, 10, 400] {
            let relayed = from.relay_to(&to, max).await;
            assert_eq!(relayed.moved, max);
            assert!(matches!(relayed.ended, RelayEnd::Complete), "{relayed:?}");
        }
        expect(&sink, &pattern(1000)[..410]).await;
        expect(&from, &pattern(1000)[410..]).await;
        // The streams work as before.
        to.write_all(b"own").await.unwrap();
        expect(&sink, b"own").await;
    });
}

/// Checks that a relay moves first what the stream has received before.
pub(crate) fn relay_begins_with_received_bytes<I: Relay + 'static>(case: &Case<'_, I>) {
    run(case, async {
        let Hop { source, from, to, sink } = hop().await;
        source.write_all(&pattern(1000)).await.unwrap();
        let bytes = from.receive().await.unwrap();
        from.put_back(bytes);
        assert_eq!(from.relay_to(&to, 10).await.moved, 10);
        source.shutdown().await.unwrap();
        assert_eq!(from.relay_to(&to, u64::MAX).await.moved, 990);
        assert!(matches!(from.relay_to(&to, 1).await.ended, RelayEnd::End));
        drop(to);
        assert_eq!(receive_all(&sink).await, pattern(1000));
    });
}

/// Checks the ends of relays whose source or target fails.
pub(crate) fn relay_reports_the_failure_of_either_side<I: Relay + 'static>(case: &Case<'_, I>) {
    run(case, async {
        let Hop { source, from, to, sink } = hop().await;
        let relay = task::spawn(async move { from.relay_to(&to, u64::MAX).await.ended });
        task::sleep(Duration::from_millis(2)).await;
        source.reset();
        let ended = relay.await.unwrap();
        let RelayEnd::ReceiveFailed(error) = ended else { panic!("{ended:?}") };
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        drop(sink);

        let Hop { source, from, to, sink } = hop().await;
        let relay = task::spawn(async move { from.relay_to(&to, u64::MAX).await.ended });
        sink.reset();
        while !relay.is_finished() {
            drop(source.write(b"bytes").await);
            task::sleep(Duration::from_millis(1)).await;
        }
        let ended = relay.await.unwrap();
        assert!(matches!(ended, RelayEnd::SendFailed(_)), "{ended:?}");
    });
}

/// Checks that a dropped relay continues, and that others wait for its end.
pub(crate) fn dropped_relay_continues<I: Relay + 'static>(case: &Case<'_, I>) {
    run(case, async {
        let Hop { source, from, to, sink } = hop().await;
        assert!(poll_once(from.relay_to(&to, u64::MAX)).await.is_none());
        source.write_all(b"bytes").await.unwrap();
        source.shutdown().await.unwrap();
        let relayed = from.relay_to(&to, u64::MAX).await;
        assert!(matches!(relayed.ended, RelayEnd::End), "{relayed:?}");
        assert_eq!(relayed.moved, 5);
        to.write_all(b" and more").await.unwrap();
        expect(&sink, b"bytes and more").await;

        // A stream that closes during a relay frees the other.
        let Hop { source, from, to, sink } = hop().await;
        assert!(poll_once(from.relay_to(&to, u64::MAX)).await.is_none());
        drop(from);
        to.write_all(b"free").await.unwrap();
        expect(&sink, b"free").await;
        drop(source);
    });
}
