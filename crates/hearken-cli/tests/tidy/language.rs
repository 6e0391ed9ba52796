//! Language rules: banned phrases, coined identifiers, and how documentation of public items begins. They are
//! a floor. The standard is the style section of CONTRIBUTING.md.

use std::fs;
use std::path::{Path, PathBuf};

use crate::root;

/// Phrases that have a plainer form, in lower case.
pub(crate) const BANNED: &[&str] = &[
    "as it likes",
    "at rest",
    "be done as asked",
    "be had",
    "become of",
    "becomes of",
    "beside",
    "came of",
    "dear",
    "dearer",
    "for ever",
    "give out",
    "gives out",
    "go on",
    "goes on",
    "had here",
    "hears",
    "hears of",
    "is asked whether",
    "is said",
    "is told",
    "it is said",
    "let go",
    "lets go",
    "tell of",
    "telling of",
    "tells of",
    "the way in",
    "told of",
    "was told",
    "went on",
    "what became",
    "what becomes",
    "what it is sent",
    "what it was sent",
    "what there is",
    "whatever becomes",
    "who is told",
    "whoever",
    "whom",
    "whosoever",
];

/// Identifiers that name a thing which has a standard name.
const COINED: &[&str] = &[
    "Bell",
    "Beside",
    "Door",
    "Given",
    "Heard",
    "Herald",
    "Picture",
    "Seat",
    "Told",
    "ask",
    "give",
    "give_out",
    "go_on",
    "hear",
    "is_behind",
    "let_go",
    "settle",
    "tell",
    "tell_of",
    "told",
];

/// Words with which documentation must not begin: it describes a thing, and does not ask for it.
const NOT_A_NOUN: &[&str] = &[
    "And", "As", "Asks", "But", "By", "How", "If", "It", "Says", "So", "Such", "Tells", "That",
    "There", "They", "Those", "What", "Whatever", "When", "Where", "Which", "Who", "Whoever",
    "Whom", "Whose", "Why",
];

/// Words that end like a verb in the third person, and are none.
const NOT_A_VERB: &[&str] = &[
    "Always", "As", "Besides", "Has", "Is", "Its", "Less", "Perhaps", "This", "Thus", "Was", "Yes",
];

/// Files that a reader meets: all that are tracked, but for licences, generated results and the lists of
/// this test.
fn texts() -> Vec<PathBuf> {
    let mut pending = vec![root()];
    let mut files = Vec::new();
    while let Some(path) = pending.pop() {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if !["target", ".git", "results", "coverage", "__fuzz__"].contains(&&*name) {
                pending.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            }
            continue;
        }
        let is_text = ["rs", "md", "toml", "sh", "py", "c", "yaml", "html", ""]
            .contains(&&*path.extension().unwrap_or_default().to_string_lossy());
        let is_list = path.ends_with("tests/tidy/language.rs");
        if is_text && !is_list && !name.starts_with("LICENSE") && !name.starts_with('.') {
            files.push(path);
        }
    }
    assert!(files.len() > 200, "{} files", files.len());
    files.sort();
    files
}

fn rust_texts() -> impl Iterator<Item = (PathBuf, String)> {
    let is_rust = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "rs");
    texts().into_iter().filter(is_rust).map(|path| {
        let text = fs::read_to_string(&path).unwrap();
        (path, text)
    })
}

fn position(path: &Path, line: usize) -> String {
    format!("{}:{line}", path.strip_prefix(root()).unwrap().display())
}

/// Returns the lines of `text` with the comment markers replaced by spaces.
fn without_markers(text: &str) -> String {
    let mut plain = String::new();
    for line in text.lines() {
        let trimmed = line.trim_start().trim_start_matches(['/', '!', '#', '*']);
        plain.push_str(trimmed.trim_start());
        plain.push('\n');
    }
    plain
}

/// Returns the byte offsets at which `phrase` occurs in `text` as whole words. Each space in it stands for any
/// white space.
fn occurrences(text: &str, phrase: &str) -> Vec<usize> {
    let words: Vec<&str> = phrase.split(' ').collect();
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    text.match_indices(words[0])
        .map(|(at, _)| at)
        .filter(|&at| {
            let mut rest = &text[at..];
            for (index, word) in words.iter().enumerate() {
                let after_space = rest.trim_start();
                if index > 0 && after_space.len() == rest.len() {
                    return false;
                }
                let Some(after) = after_space.strip_prefix(word) else { return false };
                rest = after;
            }
            !text[..at].ends_with(is_word) && !rest.starts_with(is_word)
        })
        .collect()
}

#[test]
fn texts_contain_no_banned_phrases() {
    let mut found = Vec::new();
    for path in texts() {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let plain = without_markers(&text).to_lowercase();
        for phrase in BANNED {
            for at in occurrences(&plain, phrase) {
                let line = plain[..at].matches('\n').count() + 1;
                found.push(format!("{}: \"{phrase}\"", position(&path, line)));
            }
        }
    }
    assert!(found.is_empty(), "{} banned phrases:\n{}", found.len(), found.join("\n"));
}

#[test]
fn identifiers_are_standard_terms() {
    let mut found = Vec::new();
    for (path, text) in rust_texts() {
        for (index, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap();
            for name in COINED {
                let defines = ["fn ", "struct ", "enum ", "trait ", "type ", "mod ", "let "]
                    .iter()
                    .any(|keyword| !occurrences(code, &format!("{keyword}{name}")).is_empty());
                if defines {
                    found.push(format!("{}: {name}", position(&path, index + 1)));
                }
            }
        }
    }
    assert!(found.is_empty(), "{} coined identifiers:\n{}", found.len(), found.join("\n"));
}

/// Returns a reason if the documentation of an item should begin otherwise.
fn check_opening(documentation: &str, item: &str) -> Option<&'static str> {
    let first: String = documentation
        .trim_start_matches(['[', '`', '*'])
        .chars()
        .take_while(|c| c.is_alphabetic())
        .collect();
    let modifiers = ["pub ", "pub(crate) ", "pub(super) ", "const ", "async ", "unsafe "];
    let mut rest = item;
    while let Some(after) = modifiers.iter().find_map(|modifier| rest.strip_prefix(modifier)) {
        rest = after;
    }
    if rest.starts_with("fn ") {
        // Callbacks of a caller's type.
        if first == "Called" {
            return None;
        }
        let is_verb = first.ends_with('s')
            && first.starts_with(char::is_uppercase)
            && !NOT_A_VERB.contains(&&*first)
            && !NOT_A_NOUN.contains(&&*first);
        return (!is_verb).then_some("begin with a verb in the third person, such as \"Returns\"");
    }
    NOT_A_NOUN.contains(&&*first).then_some("begin with a noun phrase")
}

#[test]
fn openings_are_checked() {
    assert_eq!(check_opening("Returns the waker.", "pub fn waker(&self) -> Waker {"), None);
    assert_eq!(check_opening("Closes it.", "pub const unsafe fn close() {"), None);
    assert!(check_opening("The waker.", "pub fn waker(&self) -> Waker {").is_some());
    assert!(check_opening("Is true if it is open.", "fn is_open() -> bool {").is_some());
    assert!(check_opening("What it was.", "pub struct Event {").is_some());
    assert_eq!(check_opening("Whether it is open.", "pub open: bool,"), None);
}

#[test]
fn documentation_begins_with_a_verb_or_a_noun() {
    let mut found = Vec::new();
    for (path, text) in rust_texts() {
        let mut lines = text.lines().enumerate().peekable();
        while let Some((index, line)) = lines.next() {
            let Some(documentation) = line.trim_start().strip_prefix("/// ") else { continue };
            // The rest of the documentation, and attributes, which may have several lines.
            let mut item = "";
            let mut brackets = 0;
            for (_, next) in lines.by_ref() {
                let next = next.trim_start();
                let is_attribute = next.starts_with("#[") || brackets > 0;
                if is_attribute {
                    brackets += next.matches('[').count() as i32 - next.matches(']').count() as i32;
                } else if !next.starts_with("//") {
                    item = next;
                    break;
                }
            }
            if let Some(reason) = check_opening(documentation, item) {
                found.push(format!("{}: {documentation:?}: {reason}", position(&path, index + 1)));
            }
        }
    }
    assert!(found.is_empty(), "{} openings:\n{}", found.len(), found.join("\n"));
}
