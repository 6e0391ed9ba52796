//! Options of mechanisms: their text form on command lines, and their validation.

use std::fmt;

/// An option of a mechanism, written `name:option=value` on command lines.
#[derive(Clone, Copy, Debug)]
pub struct OptionSpec {
    /// The option's name.
    pub name: &'static str,
    /// A description in one line.
    pub help: &'static str,
    /// The valid values.
    pub values: Values,
}

/// The valid values of an option.
#[derive(Clone, Copy, Debug)]
pub enum Values {
    /// A set of words. The first is the default.
    OneOf(&'static [&'static str]),
    /// A range of numbers.
    Number {
        /// The default.
        default: u64,
        /// The minimum.
        min: u64,
        /// The maximum.
        max: u64,
    },
}

impl fmt::Display for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Values::OneOf(words) => f.write_str(&words.join("|")),
            Values::Number { default, min, max } => {
                write!(f, "{min}..{max}, {default} by default")
            }
        }
    }
}

/// The values of a mechanism's options, validated against its [`OptionSpec`]s.
///
/// ```
/// let mut spec = hearken::mechanism::find("uring-poll")?;
/// assert_eq!(spec.options.get("shots"), "multi");
/// spec.options.set("shots", "one")?;
/// assert_eq!(spec.to_string(), "uring-poll:shots=one");
/// assert!(spec.options.set("shots", "two").is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    specs: &'static [OptionSpec],
    words: Vec<(&'static str, &'static str)>,
    numbers: Vec<(&'static str, u64)>,
}

impl Options {
    /// Returns the defaults of `specs`.
    pub const fn defaults(specs: &'static [OptionSpec]) -> Options {
        Options { specs, words: Vec::new(), numbers: Vec::new() }
    }

    /// Sets the option `name` to `value`. A later call overrides an earlier one.
    ///
    /// # Errors
    /// A message that names the valid options or values.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let Some(spec) = self.specs.iter().find(|spec| spec.name == name) else {
            let known: Vec<_> = self.specs.iter().map(|spec| spec.name).collect();
            return Err(match known.len() {
                0 => format!("unknown option '{name}' (it has no options)"),
                _ => format!("unknown option '{name}' (known: {})", known.join(", ")),
            });
        };
        let invalid =
            || format!("invalid value '{value}' of option '{name}' (valid: {})", spec.values);
        match spec.values {
            Values::OneOf(words) => {
                let word = words.iter().find(|word| **word == value).ok_or_else(invalid)?;
                self.words.retain(|(option, _)| *option != name);
                self.words.push((spec.name, word));
            }
            Values::Number { min, max, .. } => {
                let number = value.parse().ok().filter(|number| (min..=max).contains(number));
                self.numbers.retain(|(option, _)| *option != name);
                self.numbers.push((spec.name, number.ok_or_else(invalid)?));
            }
        }
        Ok(())
    }

    /// Returns the word of option `name`, or an empty string if there is no such option.
    pub fn get(&self, name: &str) -> &'static str {
        let word = self.words.iter().find(|(option, _)| *option == name).map(|(_, word)| *word);
        word.unwrap_or_else(|| match self.values(name) {
            Some(Values::OneOf([first, ..])) => first,
            _ => "",
        })
    }

    /// Returns the number of option `name`, or 0 if there is no such option.
    pub fn number(&self, name: &str) -> u64 {
        let number =
            self.numbers.iter().find(|(option, _)| *option == name).map(|(_, number)| *number);
        number.unwrap_or_else(|| match self.values(name) {
            Some(Values::Number { default, .. }) => default,
            _ => 0,
        })
    }

    fn values(&self, name: &str) -> Option<Values> {
        self.specs.iter().find(|spec| spec.name == name).map(|spec| spec.values)
    }
}

/// Writes the options that differ from the defaults, as they follow a mechanism's name.
impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for OptionSpec { name, values, .. } in self.specs {
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
