//! The command `hearken lab peers`.

use std::process::ExitCode;

use hearken_lab::peers::{Config, Kind, Recipe, Settings, builtin};

use super::{executable, run_and_report};
use crate::Failure;
use crate::args::lab::PeersArgs;
use crate::load::print;

pub(crate) fn run(args: PeersArgs) -> Result<ExitCode, Failure> {
    let kind = if args.proxies { Kind::Proxy } else { Kind::Server };
    let mut recipes = builtin(kind).map_err(Failure::runtime)?;
    for path in &args.recipes {
        let recipe = Recipe::read(path).map_err(Failure::usage)?;
        if recipe.kind != kind {
            return Err(Failure::usage(wrong_kind(&path.display().to_string(), recipe.kind)));
        }
        // The recipe replaces another one with the same name.
        recipes.retain(|other| other.name != recipe.name);
        recipes.push(recipe);
    }
    if args.list {
        print(&list(&recipes));
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(name) = &args.print_recipe {
        print(&find(&recipes, name)?.text);
        return Ok(ExitCode::SUCCESS);
    }
    let out = args.out.clone();
    let origin = match kind {
        Kind::Server => None,
        Kind::Proxy => {
            let servers = builtin(Kind::Server).map_err(Failure::runtime)?;
            Some(find(&servers, &args.origin)?.clone())
        }
    };
    let config = Config {
        executable: executable()?,
        command_line: match args.clock_is_instructions {
            Some(_) => outer_command(std::env::args()),
            None => std::env::args().collect(),
        },
        version: env!("CARGO_PKG_VERSION").to_owned(),
        settings: settings(args, &recipes)?,
        recipes,
        origin,
    };
    run_and_report(&out, |progress, stop| hearken_lab::peers::peers(&config, progress, stop))
}

/// Returns the error message for a recipe of the other kind.
fn wrong_kind(path: &str, kind: Kind) -> String {
    match kind {
        Kind::Proxy => format!("'{path}' is a recipe for a proxy (did you mean --proxies?)"),
        Kind::Server => {
            format!("'{path}' is a recipe for a server, but --proxies requires kind = \"proxy\"")
        }
    }
}

/// Reconstructs the command line that started the emulated machine.
fn outer_command(words: impl Iterator<Item = String>) -> Vec<String> {
    let mut command = vec!["scripts/peers-emulated".to_owned(), "OUT".to_owned()];
    let mut words = words.skip_while(|word| word != "peers").skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--out" | "--clock-is-instructions" => drop(words.next()),
            _ => command.push(word),
        }
    }
    command
}

fn list(recipes: &[Recipe]) -> String {
    let width = recipes.iter().map(|recipe| recipe.name.len()).max().unwrap_or(0);
    let line = |recipe: &Recipe| format!("{:width$}  {}\n", recipe.name, recipe.description);
    recipes.iter().map(line).collect()
}

fn find<'a>(recipes: &'a [Recipe], name: &str) -> Result<&'a Recipe, Failure> {
    recipes.iter().find(|recipe| recipe.name == name).ok_or_else(|| {
        let known: Vec<_> = recipes.iter().map(|recipe| recipe.name.as_str()).collect();
        let known = known.join(", ");
        Failure::usage(format!("unknown recipe '{name}' (available: {known})"))
    })
}

fn settings(args: PeersArgs, recipes: &[Recipe]) -> Result<Settings, Failure> {
    let defaults = if args.short { Settings::short() } else { Settings::default() };
    let defaults = if args.proxies { defaults.proxies() } else { defaults };
    let defaults = match args.clock_is_instructions {
        Some(emulator) => defaults.emulated(emulator),
        None => defaults,
    };
    for name in &args.servers {
        find(recipes, name)?;
    }
    let servers = match args.servers.is_empty() {
        true => recipes.iter().map(|recipe| recipe.name.clone()).collect(),
        false => args.servers,
    };
    Ok(Settings {
        servers,
        workloads: if args.workloads.is_empty() { defaults.workloads } else { args.workloads },
        idle: if args.idle.is_empty() { defaults.idle } else { args.idle },
        repetitions: args.repetitions.unwrap_or(defaults.repetitions),
        requests: args.requests.unwrap_or(defaults.requests),
        reference: args.reference,
        seed: args.seed.unwrap_or(defaults.seed),
        ..defaults
    })
}
