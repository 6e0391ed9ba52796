//! Fuzz targets of config files and plans. The README of crate hearken-fuzz says how to run them.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::panic::AssertUnwindSafe;

use clap::Command;
use rustix::fs::{MemfdFlags, memfd_create};

use crate::load_plan;
use crate::server_settings::{Options, PROXY, SERVE, validate_proxy, validate_serve};
use crate::settings::resolve::{Validate, resolve};
use crate::settings::{Table, arguments, print};

/// Reads a config file. Returns the configuration as it is printed.
fn read(
    table: &Table<Options>,
    validate: Validate<Options>,
    bytes: &[u8],
) -> Result<String, String> {
    let file = memfd_create("config", MemfdFlags::CLOEXEC).expect("memory for the input");
    let mut file = File::from(file);
    file.write_all(bytes).expect("memory for the input");
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let command = arguments::add(table, Command::new("hearken")).no_binary_name(true);
    let matches = command.try_get_matches_from(["--config", &path]).expect("valid arguments");
    let settings =
        resolve(table, &matches, validate).map_err(|failure| failure.error.to_string())?;
    print::print(table, &settings.config).map_err(|failure| failure.error.to_string())
}

// Errors are printable, and a configuration that is printed and read again is the same.
#[test]
fn config_file() {
    let commands: [(&Table<Options>, Validate<Options>); 2] =
        [(&SERVE, validate_serve), (&PROXY, validate_proxy)];
    bolero::check!().for_each(|bytes: &[u8]| {
        for (table, validate) in commands {
            match read(table, validate, bytes) {
                Ok(printed) => {
                    let again = read(table, validate, printed.as_bytes());
                    assert_eq!(again.as_ref(), Ok(&printed));
                }
                Err(error) => {
                    let is_control = |c: char| c.is_control() && c != '\n';
                    assert!(!error.contains(is_control), "{error:?}");
                }
            }
        }
    });
}

// Errors are printable, and each option becomes arguments of the command.
#[test]
fn load_plan() {
    let command = AssertUnwindSafe(load_plan::load_command());
    bolero::check!().for_each(|bytes: &[u8]| {
        let Ok(text) = str::from_utf8(bytes) else { return };
        // Files in a plan stay open until the process ends.
        if text.contains("files") || text.contains('\\') {
            return;
        }
        match load_plan::read::plan(text, "plan", "dir".as_ref(), &command) {
            Ok(options) => {
                for option in options {
                    assert!(!option.arguments.iter().any(|argument| argument.is_empty()));
                }
            }
            Err(failure) => {
                let error = failure.error.to_string();
                assert!(!error.contains(char::is_control), "{error:?}");
            }
        }
    });
}
