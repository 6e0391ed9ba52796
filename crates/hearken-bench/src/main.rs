//! `dispatch`: what one event costs, with every mechanism and beside other event libraries.
//!
//! The classic benchmark of event dispatch: N descriptors are registered, A of them become ready, the
//! events are taken and what has come is read. Mechanisms come from Hearken's table, with no list
//! here. One process starts the others (`driver`), each measures itself (`measure`) through what it
//! is (`contender`, or `peers/*.c`), and the outcome is data (`results`) and a page (`table`).

mod args;
mod contender;
mod driver;
mod goals;
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
        Some(Command::Contend { name, task }) => {
            contender::contend(&name, &task)?;
            Ok(ExitCode::SUCCESS)
        }
        Some(Command::Peers { directory }) => {
            fs::create_dir_all(&directory)?;
            let peers = Peers::build(&directory)?;
            for (program, _) in peers.programs {
                println!("{}", directory.join(program).display());
            }
            for absent in peers.absent {
                eprintln!("{}: {}", absent.name, absent.reason);
            }
            Ok(ExitCode::SUCCESS)
        }
        Some(Command::Show { results }) => {
            let report: Report = serde_json::from_slice(&fs::read(results)?)?;
            print(&table::page(&report))
        }
        Some(Command::List) => {
            let directory = tempfile::tempdir()?;
            let (everyone, absent) = contender::everyone(&Peers::build(directory.path())?);
            let names = everyone.iter().map(|contender| format!("{}\n", contender.name));
            let absent = absent.iter().map(|a| format!("({}: {})\n", a.name, a.reason));
            print(&names.chain(absent).collect::<String>())
        }
    }
}

fn run(run: Run) -> Result<ExitCode, Box<dyn Error>> {
    let run = run.settled().unwrap_or_else(|wrong| {
        use clap::CommandFactory;
        Arguments::command().error(ErrorKind::ValueValidation, wrong).exit()
    });
    let directory = tempfile::tempdir()?;
    let peers = match &run.peers {
        Some(directory) => Peers::find(directory),
        None => Peers::build(directory.path())?,
    };
    let report = driver::drive(&run, contender::everyone(&peers), &peers)?;
    let (json, page) = (serde_json::to_string_pretty(&report)?, table::page(&report));
    if let Some(out) = &run.out {
        save(out, &json, &page)?;
    }
    print(if run.json { &json } else { &page })?;
    let missed = report.goals.iter().any(|goal| goal.binding && goal.reached == Some(false));
    Ok(match () {
        () if !report.failures.is_empty() => ExitCode::from(1),
        () if run.strict && missed => ExitCode::from(3),
        () => ExitCode::SUCCESS,
    })
}

fn save(out: &Path, json: &str, page: &str) -> Result<(), Box<dyn Error>> {
    let written = fs::create_dir_all(out)
        .and_then(|()| fs::write(out.join("results.json"), json))
        .and_then(|()| fs::write(out.join("table.md"), page));
    written.map_err(|error| format!("cannot write into {}: {error}", out.display()).into())
}

/// Prints to a reader who may have gone.
fn print(text: &str) -> Result<ExitCode, Box<dyn Error>> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}
