//! Names of mechanisms with their options, addresses and networks.

use hearken::io::{Address, find};
use hearken::mechanism;
use hearken_server::runtime::network::Network;

#[test]
fn mechanism_spec() {
    bolero::check!().for_each(|bytes: &[u8]| {
        let Ok(text) = str::from_utf8(bytes) else { return };
        // Measures all mechanisms.
        if text == mechanism::AUTO {
            return;
        }
        if let Ok(spec) = find(text) {
            let shown = spec.to_string();
            let again = find(&shown).unwrap_or_else(|error| panic!("{shown}: {error}"));
            assert_eq!(again.to_string(), shown);
        }
    });
}

#[test]
fn address() {
    bolero::check!().for_each(|bytes: &[u8]| {
        let Ok(text) = str::from_utf8(bytes) else { return };
        if let Ok(address) = text.parse::<Address>()
            && !text.contains('\0')
        {
            assert_eq!(address.to_string().parse(), Ok(address));
        }
        if let (Ok(network), Some(Ok(address))) =
            (text.parse::<Network>(), text.split('/').next().map(str::parse::<std::net::IpAddr>))
        {
            assert!(network.contains(address.to_canonical()) || network.contains(address));
        }
    });
}
