//! The table of results.

use std::fmt;

use super::{Bug, Search};

/// Number of histories within which half of the bugs should be found.
const FEW: u64 = 1_000;

/// The results of the searches, one row per bug.
#[derive(Clone, Debug, Default)]
pub struct Table {
    rows: Vec<[String; 5]>,
    found: usize,
    found_early: usize,
}

impl Table {
    /// Adds a row, and returns it.
    pub fn add(&mut self, bug: Bug, search: Search) -> String {
        let histories = search.histories;
        let row = match search.detection {
            Some(detection) => {
                self.found += 1;
                self.found_early += usize::from(histories <= FEW);
                [bug.name, bug.class, detection.kind, histories.to_string(), detection.finding]
            }
            None => [bug.name, bug.class, "-".to_owned(), format!(">{histories}"), "-".to_owned()],
        };
        let text = row.join("  ");
        self.rows.push(row);
        text
    }

    /// Returns whether all bugs were found.
    pub fn is_complete(&self) -> bool {
        self.found == self.rows.len()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = ["bug", "class", "kind", "histories", "finding"].map(str::to_owned);
        let width = |column: usize| {
            let rows = self.rows.iter().chain([&names]);
            rows.map(|row| row[column].len()).max().unwrap_or_default()
        };
        let widths = [0, 1, 2, 3].map(width);
        for row in [&names].into_iter().chain(&self.rows) {
            let [bug, class, kind, histories, finding] = row;
            writeln!(
                f,
                "{bug:0$}  {class:1$}  {kind:2$}  {histories:>3$}  {finding}",
                widths[0], widths[1], widths[2], widths[3]
            )?;
        }
        let (all, found, early) = (self.rows.len(), self.found, self.found_early);
        writeln!(f, "\n{found} of {all} found, {early} within {FEW} histories")
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::Table;
    use crate::bugs::{Bug, Detection, Search};

    fn bug(name: &str) -> Bug {
        Bug {
            name: name.to_owned(),
            mistake: String::new(),
            consequence: String::new(),
            class: "dropped line".to_owned(),
            kinds: Vec::new(),
            patch: PathBuf::new(),
        }
    }

    #[test]
    fn counts_found_bugs() {
        let detection =
            Detection { kind: "server".to_owned(), seed: Some(3), finding: "hang".to_owned() };
        let mut table = Table::default();
        table.add(bug("one"), Search { histories: 4, detection: Some(detection.clone()) });
        assert!(table.is_complete());
        table.add(bug("other"), Search { histories: 2_000, detection: Some(detection) });
        table.add(bug("third"), Search { histories: 9_000, detection: None });
        assert!(!table.is_complete());
        let text = table.to_string();
        assert!(text.contains("\none    dropped line  server          4  hang\n"), "{text}");
        assert!(text.contains("\nthird  dropped line  -           >9000  -\n"), "{text}");
        assert!(text.ends_with("\n2 of 3 found, 1 within 1000 histories\n"), "{text}");
    }
}
