//! Media types of files, by file name.

/// Media types that `mime_guess` lacks, or for which it returns an obsolete name.
const OVERRIDES: &[(&str, &str)] = &[
    ("cjs", "text/javascript"),
    ("m3u8", "application/vnd.apple.mpegurl"),
    ("m4a", "audio/mp4"),
    ("map", "application/json"),
    ("mjs", "text/javascript"),
    ("otf", "font/otf"),
    ("ts", "video/mp2t"),
    ("woff", "font/woff"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("zst", "application/zstd"),
];

/// The media type of unknown files. With `nosniff`, browsers do not guess another.
const DEFAULT_TYPE: &str = "application/octet-stream";

/// Returns the value of `Content-Type` for a file name. It contains only visible ASCII characters and
/// spaces.
pub(super) fn content_type(name: &[u8]) -> String {
    let file = name.rsplit(|&byte| byte == b'/').next().unwrap_or(name);
    let extension = match file.iter().rposition(|&byte| byte == b'.') {
        Some(dot) if dot > 0 => String::from_utf8_lossy(&file[dot + 1..]).to_ascii_lowercase(),
        _ => String::new(),
    };
    let better = OVERRIDES.iter().find(|(known, _)| *known == extension).map(|&(_, kind)| kind);
    let kind =
        better.or_else(|| mime_guess::from_ext(&extension).first_raw()).unwrap_or(DEFAULT_TYPE);
    if is_text(kind) { format!("{kind}; charset=utf-8") } else { kind.to_owned() }
}

/// Returns whether the media type is text, for which a browser would guess an encoding.
fn is_text(kind: &str) -> bool {
    kind.starts_with("text/")
        || kind.ends_with("+xml")
        || kind.ends_with("+json")
        || matches!(
            kind,
            "application/javascript"
                | "application/json"
                | "application/xml"
                | "application/yaml"
                | "application/vnd.apple.mpegurl"
        )
}

#[cfg(test)]
mod tests {
    use super::content_type;

    #[test]
    fn returns_current_media_types() {
        for (name, kind) in [
            ("a.html", "text/html; charset=utf-8"),
            ("a.css", "text/css; charset=utf-8"),
            ("a.js", "text/javascript; charset=utf-8"),
            ("a.mjs", "text/javascript; charset=utf-8"),
            ("a.json", "application/json; charset=utf-8"),
            ("a.svg", "image/svg+xml; charset=utf-8"),
            ("a.txt", "text/plain; charset=utf-8"),
            ("a.md", "text/markdown; charset=utf-8"),
            ("a.xml", "text/xml; charset=utf-8"),
            ("a.webmanifest", "application/manifest+json; charset=utf-8"),
            ("a.js.map", "application/json; charset=utf-8"),
            ("a.wasm", "application/wasm"),
            ("a.webp", "image/webp"),
            ("a.avif", "image/avif"),
            ("a.png", "image/png"),
            ("a.ico", "image/x-icon"),
            ("a.woff", "font/woff"),
            ("a.woff2", "font/woff2"),
            ("a.ttf", "font/ttf"),
            ("a.mp4", "video/mp4"),
            ("a.webm", "video/webm"),
            ("a.pdf", "application/pdf"),
            ("a.gz", "application/gzip"),
            ("d.x/A.HTML", "text/html; charset=utf-8"),
        ] {
            assert_eq!(content_type(name.as_bytes()), kind, "{name}");
        }
    }

    #[test]
    fn returns_the_default_type_for_unknown_names() {
        for name in
            ["", "a", "a.", ".html", "d.html/a", "a.html/", "a.no\nsuch", "a.\u{e4}", "a.x:y"]
        {
            assert_eq!(content_type(name.as_bytes()), "application/octet-stream", "{name:?}");
        }
        assert_eq!(content_type(b"a.\xff"), "application/octet-stream");
    }
}
