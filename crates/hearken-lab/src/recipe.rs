//! Recipes: TOML files that describe how to build, configure, start and stop a server.

use std::collections::BTreeMap;
use std::path::Path;

use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::experiment::{Only, position};

/// The kind of a participant. Servers and proxies are never compared with each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Servers that generate responses themselves.
    #[default]
    Server,
    /// Proxies that forward requests to a common origin server, which is not measured.
    Proxy,
}

impl Kind {
    /// Returns the singular.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Server => "server",
            Kind::Proxy => "proxy",
        }
    }
}

/// A recipe. Its commands and files may contain placeholders:
///
/// - `{port}`: port to listen on.
/// - `{root}`: document root.
/// - `{dir}`: directory of the server.
/// - `{hearken}`: path of this program.
/// - `{connections}`: required number of concurrent connections.
/// - `{descriptors}`: limit on descriptors.
/// - `{admin}`: port of the metrics page.
/// - `{origin}`: address and port of the origin server, for proxies.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Recipe {
    /// Name of the server in reports.
    pub name: String,
    /// Kind of the participant.
    #[serde(default)]
    pub kind: Kind,
    /// Description in one line.
    #[serde(default)]
    pub description: String,
    /// Package that provides the server.
    #[serde(default)]
    pub package: Option<String>,
    /// Command that builds the server once, before its first start.
    #[serde(default)]
    pub build: Vec<String>,
    /// Command that starts the server in the foreground.
    pub command: Vec<String>,
    /// Command that prints the version in the first line.
    #[serde(default)]
    pub version: Vec<String>,
    /// Signal that stops the server.
    #[serde(default)]
    pub stop: Stop,
    /// Values of axes that the server supports [default: all]. Experiments may have other axes.
    #[serde(default)]
    pub only: Only,
    /// Whether the recipe needs arguments, so it takes part only where an experiment names it.
    #[serde(default)]
    pub template: bool,
    /// Whether the server speaks TLS. Its certificate is not verified.
    #[serde(default)]
    pub tls: bool,
    /// Descriptors that the server requires per connection.
    #[serde(default = "one")]
    pub descriptors: u64,
    /// Path of the metrics page at the port `{admin}`, if there is one.
    #[serde(default)]
    pub metrics: Option<String>,
    /// Files written to the directory of the server before each start, by name.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Names of files in the directory of the recipe that are copied to the directory of the server.
    #[serde(default)]
    pub extra_files: Vec<String>,
    /// Contents of [`extra_files`](Self::extra_files).
    #[serde(skip)]
    pub(crate) copies: BTreeMap<String, Vec<u8>>,
    /// Text of the recipe.
    #[serde(skip)]
    pub text: String,
}

fn one() -> u64 {
    1
}

/// A signal that stops a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Stop {
    /// SIGTERM.
    #[default]
    Term,
    /// SIGQUIT.
    Quit,
    /// SIGINT.
    Int,
    /// SIGKILL.
    Kill,
}

impl Stop {
    pub(crate) fn signal(self) -> Signal {
        match self {
            Stop::Term => Signal::TERM,
            Stop::Quit => Signal::QUIT,
            Stop::Int => Signal::INT,
            Stop::Kill => Signal::KILL,
        }
    }
}

/// The built-in recipes.
const BUILTIN: &[&str] = &[
    include_str!("../recipes/hearken.toml"),
    include_str!("../recipes/hearken-uring.toml"),
    include_str!("../recipes/serve.toml"),
    include_str!("../recipes/serve-metrics.toml"),
    include_str!("../recipes/delay.toml"),
    include_str!("../recipes/floor.toml"),
    include_str!("../recipes/floor-close.toml"),
    include_str!("../recipes/floor-threads.toml"),
    include_str!("../recipes/floor-threads-poll.toml"),
    include_str!("../recipes/lwan.toml"),
    include_str!("../recipes/h2o.toml"),
    include_str!("../recipes/lighttpd.toml"),
    include_str!("../recipes/nginx.toml"),
    include_str!("../recipes/nginx-sendfile.toml"),
    include_str!("../recipes/haproxy.toml"),
    include_str!("../recipes/tls/hearken.toml"),
    include_str!("../recipes/tls/h2o.toml"),
    include_str!("../recipes/tls/nginx.toml"),
    include_str!("../recipes/proxy/hearken.toml"),
    include_str!("../recipes/proxy/hearken-uring.toml"),
    include_str!("../recipes/proxy/forward.toml"),
    include_str!("../recipes/proxy/h2o.toml"),
    include_str!("../recipes/proxy/nginx.toml"),
    include_str!("../recipes/proxy/haproxy.toml"),
];
/// Extra files of the built-in recipes.
pub(crate) const EXTRA_FILES: [(&str, &str); 4] = [
    ("floor.c", include_str!("../recipes/floor.c")),
    ("floor-threads.c", include_str!("../recipes/floor-threads.c")),
    ("certificate.pem", include_str!("../recipes/tls/certificate.pem")),
    ("key.pem", include_str!("../recipes/tls/key.pem")),
];

/// Returns the built-in recipes.
///
/// # Errors
/// A built-in recipe is invalid, which tests exclude.
pub fn builtin() -> Result<Vec<Recipe>, LabError> {
    let read_extra = |name: &str| {
        let source = EXTRA_FILES.iter().find(|(extra, _)| *extra == name);
        source.map(|(_, text)| text.as_bytes().to_vec()).ok_or(std::io::ErrorKind::NotFound.into())
    };
    BUILTIN.iter().map(|text| Recipe::parse(text, "built-in recipe", read_extra)).collect()
}

impl Recipe {
    /// Reads a recipe and its extra files.
    pub fn read(path: &Path) -> Result<Recipe, LabError> {
        let text = std::fs::read_to_string(path).map_err(LabError::file("read", path))?;
        let directory = path.parent().unwrap_or(Path::new(""));
        let read_extra = |name: &str| std::fs::read(directory.join(name));
        Recipe::parse(&text, &path.display().to_string(), read_extra)
    }

    /// Parses a recipe. `origin` names it in errors, `read_extra` reads an extra file.
    pub(crate) fn parse(
        text: &str,
        origin: &str,
        read_extra: impl Fn(&str) -> std::io::Result<Vec<u8>>,
    ) -> Result<Recipe, LabError> {
        let wrong = |problem: String| LabError::Config(format!("{origin}: {problem}"));
        let mut recipe: Recipe = toml::from_str(text)
            .map_err(|error| LabError::Config(position::describe(origin, text, &error)))?;
        recipe.check().map_err(wrong)?;
        for name in &recipe.extra_files {
            let content =
                read_extra(name).map_err(|e| wrong(format!("cannot read '{name}': {e}")))?;
            recipe.copies.insert(name.clone(), content);
        }
        recipe.text = text.to_owned();
        Ok(recipe)
    }

    /// Checks the values and returns a message if one is invalid.
    fn check(&self) -> Result<(), String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let is_name = |name: &str| {
            !name.is_empty()
                && name.len() <= 40
                && name.chars().all(plain)
                && !name.starts_with('.')
        };
        if !is_name(&self.name) {
            return Err(format!(
                "invalid name '{}': only letters, digits, '-', '_' and '.' are allowed",
                self.name
            ));
        }
        if self.command.is_empty() {
            return Err("the command is missing".into());
        }
        if let Some(name) = self.files.keys().chain(&self.extra_files).find(|name| !is_name(name)) {
            return Err(format!("invalid file name '{name}'"));
        }
        Ok(())
    }

    /// Returns the program that must be installed: of the build command, or the server itself.
    pub(crate) fn program(&self) -> &str {
        self.build.first().unwrap_or(&self.command[0])
    }
}

/// Replaces each placeholder `{name}` of `values`. Other text remains unchanged.
pub(crate) fn substitute(text: &str, values: &[(&str, String)]) -> String {
    let mut filled = text.to_owned();
    for (name, value) in values {
        filled = filled.replace(&format!("{{{name}}}"), value);
    }
    filled
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Recipe, String> {
        let nothing = |_: &str| Err(std::io::ErrorKind::NotFound.into());
        Recipe::parse(text, "there", nothing).map_err(|e| e.to_string())
    }

    #[test]
    fn builtin_recipes_are_consistent() {
        for kind in [Kind::Server, Kind::Proxy] {
            let all = builtin().unwrap();
            check_builtin(&all.into_iter().filter(|r| r.kind == kind).collect::<Vec<_>>(), kind);
        }
    }

    fn check_builtin(recipes: &[Recipe], kind: Kind) {
        let mut names: Vec<_> = recipes.iter().map(|recipe| recipe.name.as_str()).collect();
        assert_eq!(names[0], "hearken");
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), recipes.len());
        for recipe in recipes {
            assert!(
                !recipe.description.is_empty() && recipe.text.starts_with('#'),
                "{}",
                recipe.name
            );
            let words = recipe.command.iter().chain(recipe.files.values());
            assert!(words.clone().any(|word| word.contains("{port}")), "{}", recipe.name);
            let forwards = words.clone().any(|word| word.contains("{origin}"));
            assert!(recipe.kind == kind && forwards == (kind == Kind::Proxy), "{}", recipe.name);
        }
    }

    #[test]
    fn optional_keys_have_defaults() {
        let recipe = parse("name = \"x\"\ncommand = [\"x\", \"{port}\"]").unwrap();
        assert!(recipe.only.is_empty() && recipe.stop == Stop::Term && recipe.kind == Kind::Server);
        let text = "name = \"x\"\ncommand = [\"x\"]\nonly = { workload = [\"1b\"], idle = [0] }";
        assert_eq!(parse(text).unwrap().only["idle"][0].as_str(), "0");
    }

    #[test]
    fn errors_name_the_invalid_value() {
        for (text, named) in [
            ("name = \"x\"", "command"),
            ("name = \"x\"\ncommand = []", "command"),
            ("name = \"../x\"\ncommand = [\"x\"]", "../x"),
            ("name = \"x\"\ncommand = [\"x\"]\nport = 5", "port"),
            ("name = \"x\"\ncommand = [\"x\"]\nstop = \"HUP\"", "HUP"),
            ("name = \"x\"\ncommand = [\"x\"]\nidle = false", "idle"),
            ("name = \"x\"\nkind = \"cache\"\ncommand = [\"x\"]", "cache"),
            ("name = \"x\"\ncommand = [\"x\"]\nextra-files = [\"y.c\"]", "y.c"),
            ("name = \"x\"\ncommand = [\"x\"]\n[files]\n\"../../etc/x\" = \"\"", "etc"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(named) && error.contains("there"), "{error}");
        }
    }

    #[test]
    fn substitutes_only_known_placeholders() {
        let values = [("port", "80".to_string()), ("root", "/srv".into())];
        assert_eq!(
            substitute("http { listen {port}; {x} {root}/{port} }", &values),
            "http { listen 80; {x} /srv/80 }"
        );
    }
}
