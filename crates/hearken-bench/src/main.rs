//! `dispatch`: measures the cost of one event with each mechanism and with other event libraries.
//!
//! The benchmark registers N descriptors, makes A descriptors ready, receives the events and reads the
//! data.
//! The mechanisms come from Hearken's table. One process starts the others (`driver`), and each of
//! these measures itself (`measure`) with one implementation (`contender` or `peers/*.c`). The output is
//! data (`results`) and a page (`table`).

mod args;
mod checks;
mod contender;
mod driver;
mod measure;
mod pairs;
mod peers;
mod results;
mod table;
mod trace;

use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use args::{Arguments, Command, Run};
use peers::Peers;
use results::Report;

fn main() -> ExitCode {
    match start(Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("dispatch: {error}");
            ExitCode::from(1)
        }
    }
}

fn start(arguments: Arguments) -> Result<ExitCode, Box<dyn Error>> {
    match arguments.command {
        None => run(arguments.run),
        Some(Command::Measure { name, task }) => {
            contender::measure_contender(&name, &task)?;
            Ok(ExitCode::SUCCESS)
        }
        Some(Command::Peers { directory }) => {
            fs::create_dir_all(&directory)?;
            let peers = Peers::build(&directory)?;
            for (program, _) in peers.programs {
                println!("{}", directory.join(program).display());
            }
            for unavailable in peers.unavailable {
                eprintln!("{}: {}", unavailable.name, unavailable.reason);
            }
            Ok(ExitCode::SUCCESS)
        }
        Some(Command::Show { results }) => {
            let report = load(&results)?;
            print(&table::page(&report))
        }
        Some(Command::List) => {
            let directory = tempfile::tempdir()?;
            let (contenders, unavailable) = contender::contenders(&Peers::build(directory.path())?);
            let names = contenders.iter().map(|contender| format!("{}\n", contender.name));
            let unavailable = unavailable.iter().map(|a| format!("({}: {})\n", a.name, a.reason));
            print(&names.chain(unavailable).collect::<String>())
        }
    }
}

fn load(results: &Path) -> Result<Report, Box<dyn Error>> {
    let report = fs::read(results)
        .map_err(Box::<dyn Error>::from)
        .and_then(|bytes| Ok(serde_json::from_slice(&bytes)?));
    report.map_err(|error| {
        format!("cannot read results file '{}': {error}", results.display()).into()
    })
}

fn run(run: Run) -> Result<ExitCode, Box<dyn Error>> {
    let run = run.validate().unwrap_or_else(|message| {
        use clap::CommandFactory;
        Arguments::command().error(ErrorKind::ValueValidation, message).exit()
    });
    let directory = tempfile::tempdir()?;
    let peers = match &run.peers {
        Some(directory) => Peers::find(directory),
        None => Peers::build(directory.path())?,
    };
    let report = driver::drive(&run, contender::contenders(&peers), &peers)?;
    let (json, page) = (serde_json::to_string_pretty(&report)?, table::page(&report));
    if let Some(out) = &run.out {
        save(out, &json, &page)?;
    }
    print(if run.json { &json } else { &page })?;
    let failed = report.checks.iter().any(|check| check.required && check.passed == Some(false));
    Ok(match () {
        () if !report.failures.is_empty() => ExitCode::from(1),
        () if run.strict && failed => ExitCode::from(3),
        () => ExitCode::SUCCESS,
    })
}

fn save(out: &Path, json: &str, page: &str) -> Result<(), Box<dyn Error>> {
    let written = fs::create_dir_all(out)
        .and_then(|()| fs::write(out.join("results.json"), json))
        .and_then(|()| fs::write(out.join("table.md"), page));
    written.map_err(|error| {
        format!("cannot write results to directory '{}': {error}", out.display()).into()
    })
}

/// Prints to standard output, ignoring a closed pipe.
fn print(text: &str) -> Result<ExitCode, Box<dyn Error>> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}
