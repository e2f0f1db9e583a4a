//! The programs that tests start: the command, examples, libraries. Cargo does not build those of other packages for a test.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds what these arguments of `cargo build` name, in the profile of the calling test. Returns the folder of cargo's build output.
///
/// The script that runs all tests of the workspace builds everything by one command, which `TOWLINE_TEST_BUILD` names. The same command
/// is used here then: it waits until that one is done, and has nothing left to do. With other arguments, some packages would have
/// other features, and would be built twice.
pub fn build(what: &[&[&'static str]]) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().and_then(Path::parent).unwrap().to_owned();
    let profile = match folder.file_name().and_then(|name| name.to_str()).unwrap() {
        "debug" => "dev",
        other => other,
    };
    let of_all = std::env::var("TOWLINE_TEST_BUILD").ok();
    let of_all = of_all.as_ref().map(|arguments| arguments.split_whitespace().collect::<Vec<_>>());
    let target = folder.parent().and_then(Path::to_str).unwrap();
    let of_some = |what: &&[&'static str]| [&["build", "--profile", profile, "--target-dir", target], *what].concat();
    for arguments in of_all.map_or_else(|| what.iter().map(of_some).collect(), |it| vec![it]) {
        let mut command = Command::new(env!("CARGO"));
        command.args(arguments).arg("--quiet").current_dir(env!("CARGO_MANIFEST_DIR"));
        assert!(command.status().unwrap().success(), "failed: {command:?}");
    }
    folder
}
