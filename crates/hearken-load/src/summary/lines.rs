//! Lines of a text summary, wrapped to the width of a terminal.

use std::fmt;

/// Maximum number of columns.
const WIDTH: usize = 80;
/// Columns before the text of a line, which contain its title.
const INDENTATION: usize = 13;

/// Writes a text under a title of at most 10 columns. Words that do not fit continue on further
/// lines.
pub(crate) fn write_line(f: &mut fmt::Formatter<'_>, title: &str, text: &str) -> fmt::Result {
    let mut title = title;
    for line in wrap(text, WIDTH - INDENTATION) {
        writeln!(f, "{}", format!("  {title:<10} {line}").trim_end())?;
        title = "";
    }
    Ok(())
}

/// Divides a text at spaces into lines of at most `width` characters. A longer word, such as a rate
/// with many steps, is divided after commas. Without commas it stays whole.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut add = |piece: &str, space: &str| {
        // The vector is never empty.
        let Some(line) = lines.last_mut() else { return };
        let wanted = line.chars().count() + space.len() + piece.chars().count();
        if line.is_empty() || wanted <= width {
            *line += if line.is_empty() { "" } else { space };
            *line += piece;
        } else {
            lines.push(piece.to_owned());
        }
    };
    for word in text.split_whitespace() {
        if word.chars().count() <= width {
            add(word, " ");
            continue;
        }
        let mut space = " ";
        for piece in word.split_inclusive(',') {
            add(piece, space);
            space = "";
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::wrap;

    #[test]
    fn divides_at_spaces_and_long_words_after_commas() {
        assert_eq!(wrap("", 5), [""]);
        assert_eq!(wrap("ab cd ef", 5), ["ab cd", "ef"]);
        assert_eq!(wrap("a 10@1s,20@1s,30@1s b", 10), ["a 10@1s,", "20@1s,", "30@1s b"]);
        assert_eq!(wrap("a http://a.example/b c", 6), ["a", "http://a.example/b", "c"]);
    }

    proptest! {
        #[test]
        fn keeps_all_words_in_order(text in "[a-zé,]{0,9}( [a-zé,]{0,9}){0,20}", width in 1..30usize) {
            let lines = wrap(&text, width);
            let without_spaces = |text: &str| text.replace(' ', "");
            prop_assert_eq!(without_spaces(&lines.concat()), without_spaces(&text));
            for line in lines {
                let long = line.split_inclusive([' ', ',']).any(|word| word.chars().count() > width);
                prop_assert!(line.chars().count() <= width || long, "{line}");
            }
        }
    }
}
