//! Options of a mechanism, as text on a command line and checked in code.

use std::fmt;

/// One thing that can be chosen about a mechanism: `name:option=value` on every command line.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// The option's name.
    pub name: &'static str,
    /// One line on what it decides.
    pub help: &'static str,
    /// What it can be.
    pub values: Values,
}

/// What an option can be.
#[derive(Clone, Copy, Debug)]
pub enum Values {
    /// One of these words; the first where nothing is said.
    OneOf(&'static [&'static str]),
    /// A number within bounds.
    Number {
        /// What it is where nothing is said.
        default: u64,
        /// The least allowed.
        least: u64,
        /// The most allowed.
        most: u64,
    },
}

impl fmt::Display for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Values::OneOf(words) => f.write_str(&words.join("|")),
            Values::Number { default, least, most } => {
                write!(f, "{least}..{most}, {default} by default")
            }
        }
    }
}

/// What was chosen, checked against the mechanism's [`Choice`]s.
#[derive(Clone, Debug)]
pub struct Options {
    choices: &'static [Choice],
    words: Vec<(&'static str, &'static str)>,
    numbers: Vec<(&'static str, u64)>,
}

impl Options {
    /// The defaults of `choices`.
    pub const fn defaults(choices: &'static [Choice]) -> Options {
        Options { choices, words: Vec::new(), numbers: Vec::new() }
    }

    /// Chooses `value` for the option called `name`; what was chosen last holds.
    ///
    /// # Errors
    /// A text that says what would have been right.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let Some(choice) = self.choices.iter().find(|choice| choice.name == name) else {
            let known: Vec<_> = self.choices.iter().map(|choice| choice.name).collect();
            return Err(match known.len() {
                0 => format!("no option \"{name}\": it has none"),
                _ => format!("no option \"{name}\"; known are: {}", known.join(", ")),
            });
        };
        let refused = || format!("{name}={value}: it can be {}", choice.values);
        match choice.values {
            Values::OneOf(words) => {
                let word = words.iter().find(|word| **word == value).ok_or_else(refused)?;
                self.words.retain(|(of, _)| *of != name);
                self.words.push((choice.name, word));
            }
            Values::Number { least, most, .. } => {
                let number = value.parse().ok().filter(|number| (least..=most).contains(number));
                self.numbers.retain(|(of, _)| *of != name);
                self.numbers.push((choice.name, number.ok_or_else(refused)?));
            }
        }
        Ok(())
    }

    /// The word chosen for `name`, or its default; empty where there is no such option.
    pub fn get(&self, name: &str) -> &'static str {
        let chosen = self.words.iter().find(|(of, _)| *of == name).map(|(_, word)| *word);
        chosen.unwrap_or_else(|| match self.values(name) {
            Some(Values::OneOf([first, ..])) => first,
            _ => "",
        })
    }

    /// The number chosen for `name`, or its default; 0 where there is no such option.
    pub fn number(&self, name: &str) -> u64 {
        let chosen = self.numbers.iter().find(|(of, _)| *of == name).map(|(_, number)| *number);
        chosen.unwrap_or_else(|| match self.values(name) {
            Some(Values::Number { default, .. }) => default,
            _ => 0,
        })
    }

    fn values(&self, name: &str) -> Option<Values> {
        self.choices.iter().find(|choice| choice.name == name).map(|choice| choice.values)
    }
}

/// What differs from the defaults, as it is said after a mechanism's name.
impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Choice { name, values, .. } in self.choices {
            match values {
                Values::OneOf([first, ..]) if self.get(name) != *first => {
                    write!(f, ":{name}={}", self.get(name))?;
                }
                Values::Number { default, .. } if self.number(name) != *default => {
                    write!(f, ":{name}={}", self.number(name))?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}
