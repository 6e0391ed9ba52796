//! The part of the system that limited the reply rate.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The part of the system that limited the reply rate of a load.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Bottleneck {
    /// None: the server answered the offered load.
    #[default]
    None,
    /// The server.
    Server,
    /// The maximum number of connections in the settings. More connections could reach a higher
    /// rate, if the server can serve more requests at once.
    Connections,
    /// The CPU of the generator.
    Generator,
    /// The number of local ports.
    Ports,
    /// The limit of open files.
    Descriptors,
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Bottleneck::None => "none",
            Bottleneck::Server => "server",
            Bottleneck::Connections => "connections",
            Bottleneck::Generator => "generator",
            Bottleneck::Ports => "ports",
            Bottleneck::Descriptors => "descriptors",
        })
    }
}
