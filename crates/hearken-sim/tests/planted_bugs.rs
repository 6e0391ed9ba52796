//! The planted bugs are patches of the present code.

use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use hearken_sim::bugs;

#[test]
fn planted_bugs_apply_to_the_code() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("bugs");
    let names = bugs::names(&directory).unwrap();
    assert!(names.len() >= 30, "{}", names.len());
    for name in names {
        let bug = bugs::read(&directory, &name).unwrap();
        let mut check = Command::new("git");
        check.args(["apply", "--check", "--recount", "-C1"]).arg(&bug.patch);
        match check.current_dir(&repository).output() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return eprintln!("skipped: git is not installed");
            }
            output => {
                let output = output.unwrap();
                let errors = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{name} does not apply: {errors}");
            }
        }
    }
}
