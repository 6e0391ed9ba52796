//! Settings of WebSocket connections.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::MAX_MESSAGE_SIZE;
use super::stamp::STAMP_SIZE;
use crate::side_settings;
use crate::workload::parse_duration;

/// Default time between two messages, see [`WebSocketOptions::every`].
const DEFAULT_INTERVAL: Duration = Duration::from_secs(1);
const DEFAULT_SIZE: usize = 64;
const MIN_INTERVAL: Duration = Duration::from_millis(1);

/// Settings of WebSocket connections at the side of the load.
///
/// ```
/// use hearken_load::{WebSocketMode, WebSocketOptions};
///
/// let options: WebSocketOptions = "1000,mode=echo,every=2s,size=100".parse()?;
/// assert_eq!((options.connections, options.mode), (1000, WebSocketMode::Echo));
/// assert!("1000,size=1".parse::<WebSocketOptions>().is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct WebSocketOptions {
    /// Number of connections.
    pub connections: usize,
    /// Use of the connections.
    pub mode: WebSocketMode,
    /// Time between two messages, or between two pings of an idle connection. Idle connections send
    /// no pings by default.
    pub every: Option<Duration>,
    /// Size of a message in bytes.
    pub size: usize,
    /// Whether messages are binary instead of text.
    pub binary: bool,
    /// Path to request, instead of that of the URL.
    pub path: Option<String>,
}

/// The use of WebSocket connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum WebSocketMode {
    /// The connections are idle, except for pings.
    #[default]
    Idle,
    /// Each connection sends messages, which the server sends back.
    Echo,
    /// One connection of each generator sends messages, which the server sends to all others.
    Broadcast,
}

impl fmt::Display for WebSocketMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WebSocketMode::Idle => "idle",
            WebSocketMode::Echo => "echo",
            WebSocketMode::Broadcast => "broadcast",
        })
    }
}

impl WebSocketOptions {
    /// Creates settings for idle connections.
    pub fn idle(connections: usize) -> WebSocketOptions {
        WebSocketOptions {
            connections,
            mode: WebSocketMode::Idle,
            every: None,
            size: DEFAULT_SIZE,
            binary: false,
            path: None,
        }
    }

    /// Returns whether the interval and the size are within their bounds.
    pub(crate) fn is_valid(&self) -> bool {
        self.every.is_none_or(|every| every >= MIN_INTERVAL)
            && (STAMP_SIZE..=MAX_MESSAGE_SIZE).contains(&self.size)
    }
}

impl FromStr for WebSocketOptions {
    type Err = String;

    fn from_str(text: &str) -> Result<WebSocketOptions, String> {
        let (connections, settings) = side_settings::parse(text)?;
        let mut options = WebSocketOptions::idle(connections);
        for (key, value) in settings {
            match key {
                "mode" => options.mode = parse_mode(value)?,
                "every" => {
                    let every = parse_duration(value)?;
                    if every < MIN_INTERVAL {
                        return Err(format!("invalid interval '{value}': expected 1ms to 24h"));
                    }
                    options.every = Some(every);
                }
                "size" => {
                    let size = value.parse().ok();
                    let size = size.filter(|size| (STAMP_SIZE..=MAX_MESSAGE_SIZE).contains(size));
                    options.size = size.ok_or_else(|| {
                        format!(
                            "invalid message size '{value}': expected {STAMP_SIZE} to \
                             {MAX_MESSAGE_SIZE} bytes"
                        )
                    })?;
                }
                "type" => {
                    options.binary = match value {
                        "text" => false,
                        "binary" => true,
                        _ => {
                            return Err(format!(
                                "invalid message type '{value}': expected text or binary"
                            ));
                        }
                    }
                }
                "path" if value.starts_with('/') => options.path = Some(value.to_owned()),
                "path" => {
                    return Err(format!("invalid path '{value}': expected a leading '/'"));
                }
                _ => {
                    return Err(format!(
                        "unknown setting '{key}': expected mode, every, size, type or path"
                    ));
                }
            }
        }
        if options.mode != WebSocketMode::Idle {
            options.every.get_or_insert(DEFAULT_INTERVAL);
        }
        Ok(options)
    }
}

fn parse_mode(text: &str) -> Result<WebSocketMode, String> {
    match text {
        "idle" => Ok(WebSocketMode::Idle),
        "echo" => Ok(WebSocketMode::Echo),
        "broadcast" => Ok(WebSocketMode::Broadcast),
        _ => Err(format!("invalid mode '{text}': expected idle, echo or broadcast")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_settings() {
        let parse = |text: &str| text.parse::<WebSocketOptions>();
        assert_eq!(parse("5"), Ok(WebSocketOptions::idle(5)));
        let all = parse("5,mode=broadcast,every=10ms,size=32,type=binary,path=/x?y=1").unwrap();
        let expected = WebSocketOptions {
            mode: WebSocketMode::Broadcast,
            every: Some(Duration::from_millis(10)),
            size: 32,
            binary: true,
            path: Some("/x?y=1".to_owned()),
            ..WebSocketOptions::idle(5)
        };
        assert_eq!(all, expected);
        assert_eq!(parse("5,mode=echo").unwrap().every, Some(DEFAULT_INTERVAL));
    }

    #[test]
    fn rejects_invalid_settings() {
        for (text, reason) in [
            ("", "invalid number of connections ''"),
            ("0", "expected 1 to 10,000,000"),
            ("5,echo", "invalid setting 'echo'"),
            ("5,mode=chat", "invalid mode 'chat'"),
            ("5,every=0", "invalid interval '0'"),
            ("5,size=31", "invalid message size '31'"),
            ("5,size=2000000", "32 to 1048576"),
            ("5,type=x", "invalid message type"),
            ("5,path=x", "invalid path 'x'"),
            ("5,rate=1", "unknown setting 'rate'"),
            ("5,size=40,size=40", "'size' is repeated"),
        ] {
            let error = text.parse::<WebSocketOptions>().unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
