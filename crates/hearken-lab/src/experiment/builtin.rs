//! The built-in experiments.

use super::Experiment;
use crate::error::LabError;

/// File names and texts.
const FILES: &[(&str, &str)] = &[
    ("quick.toml", include_str!("../../experiments/quick.toml")),
    ("peers.toml", include_str!("../../experiments/peers.toml")),
    ("tls.toml", include_str!("../../experiments/tls.toml")),
    ("models.toml", include_str!("../../experiments/models.toml")),
    ("overhead.toml", include_str!("../../experiments/overhead.toml")),
    ("saturation.toml", include_str!("../../experiments/saturation.toml")),
    ("specweb.toml", include_str!("../../experiments/specweb.toml")),
    ("overload.toml", include_str!("../../experiments/overload.toml")),
    ("threads-load.toml", include_str!("../../experiments/threads-load.toml")),
    ("forwarding.toml", include_str!("../../experiments/forwarding.toml")),
    ("overflow.toml", include_str!("../../experiments/overflow.toml")),
    ("locality.toml", include_str!("../../experiments/locality.toml")),
    ("waits.toml", include_str!("../../experiments/waits.toml")),
    ("calls.toml", include_str!("../../experiments/calls.toml")),
    ("clients.toml", include_str!("../../experiments/clients.toml")),
    ("cores.toml", include_str!("../../experiments/cores.toml")),
    ("network.toml", include_str!("../../experiments/network.toml")),
    ("delay.toml", include_str!("../../experiments/delay.toml")),
    ("throttle.toml", include_str!("../../experiments/throttle.toml")),
    ("advise.toml", include_str!("../../experiments/advise.toml")),
    ("proxies.toml", include_str!("../../experiments/proxies.toml")),
];

/// Returns the built-in experiments.
///
/// # Errors
/// A built-in experiment is invalid, which tests exclude.
pub fn builtin() -> Result<Vec<Experiment>, LabError> {
    FILES.iter().map(|(name, text)| Experiment::parse(text, name)).collect()
}
