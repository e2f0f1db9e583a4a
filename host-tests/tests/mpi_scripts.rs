//! The scripts that run other people's MPI programs (`host-tests/mpi`): their own tests.

use std::path::Path;
use std::process::Command;

#[test]
fn the_scripts_read_lists_and_judge_outcomes_rightly() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("mpi/unit_tests.py");
    let output =
        Command::new("python3").arg(tests).output().unwrap_or_else(|why| panic!("python3: {why}: install Python 3"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
