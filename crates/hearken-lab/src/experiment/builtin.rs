//! The built-in experiments.

use super::Experiment;
use crate::error::LabError;

/// File names and texts.
const FILES: &[(&str, &str)] = &[
    ("quick.toml", include_str!("../../experiments/quick.toml")),
    ("peers.toml", include_str!("../../experiments/peers.toml")),
    ("models.toml", include_str!("../../experiments/models.toml")),
    ("overhead.toml", include_str!("../../experiments/overhead.toml")),
    ("proxies.toml", include_str!("../../experiments/proxies.toml")),
];

/// Returns the built-in experiments.
///
/// # Errors
/// A built-in experiment is invalid, which tests exclude.
pub fn builtin() -> Result<Vec<Experiment>, LabError> {
    FILES.iter().map(|(name, text)| Experiment::parse(text, name)).collect()
}
