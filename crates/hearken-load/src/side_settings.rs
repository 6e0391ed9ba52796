//! Parsing of `N,KEY=VALUE,...`: a number of connections at the side of the load and their settings.

/// Maximum number of connections of a kind.
const MAX_CONNECTIONS: usize = 10_000_000;

/// A key and its value.
type Setting<'a> = (&'a str, &'a str);

/// Parses the number of connections, and returns it with the settings.
pub(crate) fn parse(text: &str) -> Result<(usize, Vec<Setting<'_>>), String> {
    let mut parts = text.split(',');
    let count = parts.next().unwrap_or_default();
    let connections = count
        .parse::<usize>()
        .ok()
        .filter(|count| (1..=MAX_CONNECTIONS).contains(count))
        .ok_or_else(|| {
            format!("invalid number of connections '{count}': expected 1 to 10,000,000")
        })?;
    let mut settings: Vec<Setting<'_>> = Vec::new();
    for part in parts {
        let (key, value) = part
            .split_once('=')
            .ok_or_else(|| format!("invalid setting '{part}': expected KEY=VALUE"))?;
        if settings.iter().any(|&(other, _)| other == key) {
            return Err(format!("setting '{key}' is repeated; use it once"));
        }
        settings.push((key, value));
    }
    Ok((connections, settings))
}
