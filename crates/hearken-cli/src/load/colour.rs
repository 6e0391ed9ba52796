//! Colours in the text summary on a terminal.

use console::Style;

/// Columns before the text of a line, which contain its title.
const INDENTATION: &str = "             ";

/// Returns a summary with problems in colour, if standard output is a terminal. `console` honours NO_COLOR.
pub(super) fn coloured(summary: &str) -> String {
    let (red, yellow) = (Style::new().for_stdout().red(), Style::new().for_stdout().yellow());
    with_styles(summary, &red, &yellow)
}

/// Returns a summary with errors and missed objectives in one style, and warnings in another.
fn with_styles(summary: &str, error: &Style, warning: &Style) -> String {
    let mut style = None;
    let mut text = String::new();
    for line in summary.split_inclusive('\n') {
        let content = line.trim_end_matches('\n');
        // A line without a title continues the previous one.
        if !line.starts_with(INDENTATION) || content.trim().is_empty() {
            style = match content.split_whitespace().next() {
                _ if !line.starts_with("  ") => None,
                Some("errors") => Some(error),
                Some("objective") if content.contains(": not met, ") => Some(error),
                Some("warning" | "missed" | "timeouts" | "bottleneck" | "unfinished") => {
                    Some(warning)
                }
                _ => None,
            };
        }
        match style {
            Some(style) => {
                text += &format!("{}{}", style.apply_to(content), &line[content.len()..]);
            }
            None => text += line,
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_and_their_continuation_lines_are_coloured() {
        let summary = "\
http://127.0.0.1:8080/
  load       100.0 requests/s offered
  warning    the generator was late: its
             lateness is 1.00 ms
  errors     status 5
  replies    95 of 100

                    p50        p90
  latency       1.00 ms    2.00 ms
  objective  p99 < 5 ms: met, 1.00 ms
  objective  p50 < 1 us: not met, 1.00 ms
";
        let [red, yellow] =
            [Style::new().red(), Style::new().yellow()].map(|style| style.force_styling(true));
        let text = with_styles(summary, &red, &yellow);
        let coloured: Vec<_> = text
            .lines()
            .filter(|line| line.contains('\x1b'))
            .map(|line| console::strip_ansi_codes(line).into_owned())
            .collect();
        let expected = [
            "  warning    the generator was late: its",
            "             lateness is 1.00 ms",
            "  errors     status 5",
            "  objective  p50 < 1 us: not met, 1.00 ms",
        ];
        assert_eq!(coloured, expected, "{text}");
        assert_eq!(console::strip_ansi_codes(&text), summary);
        let plain = Style::new().red().force_styling(false);
        assert_eq!(with_styles(summary, &plain, &plain), summary);
    }
}
