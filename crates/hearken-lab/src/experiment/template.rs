//! Text with variables.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

/// Text in which `{name}` stands for a variable and `{a*b}` for a product. Numbers and truth values
/// are text too.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "toml::Value")]
pub struct Template(String);

/// Values of variables.
pub type Variables = BTreeMap<String, String>;

impl TryFrom<toml::Value> for Template {
    type Error = &'static str;

    fn try_from(value: toml::Value) -> Result<Template, &'static str> {
        super::scalar(&value).map(Template).ok_or("expected a string, a number, true or false")
    }
}

impl From<String> for Template {
    fn from(text: String) -> Template {
        Template(text)
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Template {
    /// Returns the text with its variables.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the expressions in braces.
    pub(crate) fn expressions(&self) -> impl Iterator<Item = &str> {
        self.0.split('{').skip(1).filter_map(|rest| rest.split_once('}')).map(|(inner, _)| inner)
    }

    /// Returns the names of the variables.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let factors = self.expressions().flat_map(|expression| expression.split('*'));
        factors.map(str::trim).filter(|factor| factor.parse::<f64>().is_err())
    }

    /// Replaces the variables. Unknown variables remain as they are; a check excludes them.
    pub fn fill(&self, variables: &Variables) -> String {
        let mut filled = String::with_capacity(self.0.len());
        let mut rest = self.0.as_str();
        while let Some((before, after)) = rest.split_once('{') {
            filled += before;
            let Some((expression, after)) = after.split_once('}') else {
                rest = &rest[before.len()..];
                break;
            };
            match evaluate(expression, variables) {
                Some(value) => filled += &value,
                None => filled += &format!("{{{expression}}}"),
            }
            rest = after;
        }
        filled + rest
    }
}

/// Returns the value of a variable, or the product of variables and numbers.
fn evaluate(expression: &str, variables: &Variables) -> Option<String> {
    let factors: Vec<&str> = expression.split('*').map(str::trim).collect();
    if let [name] = *factors {
        return variables.get(name).cloned();
    }
    let number =
        |factor: &&str| factor.parse().ok().or_else(|| variables.get(*factor)?.parse::<f64>().ok());
    let product = factors.iter().map(number).product::<Option<f64>>()?;
    // Seven digits suffice for rates, and hide rounding errors of binary fractions.
    Some(if product.fract() == 0.0 { format!("{product:.0}") } else { format!("{product:.3}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(text: &str) -> String {
        let values = [("rate", "2000"), ("share", "0.25"), ("load.factor", "1.1")];
        let variables = values.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        Template(text.to_owned()).fill(&variables)
    }

    #[test]
    fn replaces_variables_and_products() {
        assert_eq!(fill("a {rate} b {share}"), "a 2000 b 0.25");
        assert_eq!(fill("{rate*share}"), "500");
        assert_eq!(fill("{rate * load.factor * 0.5}"), "1100");
        assert_eq!(fill("{share*share*0.3}"), "0.019");
        assert_eq!(fill("{other} {rate*other} {"), "{other} {rate*other} {");
    }

    #[test]
    fn lists_the_names_of_its_variables() {
        let template = Template("{a} {b.c * 2*d} x".to_owned());
        assert_eq!(template.names().collect::<Vec<_>>(), ["a", "b.c", "d"]);
    }
}
