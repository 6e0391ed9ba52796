//! Error messages with a position and a suggestion.

/// Similarity above which a known name is suggested.
const SIMILAR: f64 = 0.8;

/// Describes an error of the TOML parser, with the position and a suggestion for unknown keys.
pub(crate) fn describe(origin: &str, text: &str, error: &toml::de::Error) -> String {
    let message = error.message().replace('\n', ": ");
    // Serde quotes with backquotes: unknown field `x`, expected one of `a`, `b`.
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let hint = match *quoted {
        [unknown, ref known @ ..] if message.starts_with("unknown ") => {
            suggestion(unknown, known.iter().copied())
        }
        _ => String::new(),
    };
    let message = message.replace("unknown field", "unknown key").replace('`', "'");
    let message = match hint.is_empty() {
        true => message,
        false => format!("{}{hint}", message.split(", expected").next().unwrap_or_default()),
    };
    match error.span() {
        Some(span) => at(origin, text, span.start, &message),
        None => format!("{origin}: {message}"),
    }
}

/// Adds the position of the first occurrence of `needle` to a message.
pub(crate) fn locate(origin: &str, text: &str, needle: &str, message: &str) -> String {
    match text.find(needle).filter(|_| !needle.is_empty()) {
        Some(offset) => at(origin, text, offset, message),
        None => format!("{origin}: {message}"),
    }
}

/// Adds the line and column of a byte offset to a message.
fn at(origin: &str, text: &str, offset: usize, message: &str) -> String {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("'{origin}': line {line}, column {column}: {message}")
}

/// Returns ` (did you mean 'NAME'?)` with the most similar known name, or an empty string.
pub(crate) fn suggestion<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let rated = known.map(|known| (strsim::jaro_winkler(name, known), known));
    match rated.filter(|(rating, _)| *rating > SIMILAR).max_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((_, similar)) => format!(" (did you mean '{similar}'?)"),
        None => String::new(),
    }
}
