//! C programs over the C interface: they are compiled by the system's compiler, and run as real processes.

mod launched;
mod programs;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock};

/// The folder of cargo's build output, with the library and the command.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| programs::build(&[&["-p", "towline-cli", "--bin", "towline"], &["-p", "towline-c"]]))
}

/// The folder of the crate `towline-c`.
fn interface() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("adapters/c")
}

/// Compiles a program, by `cc` or `c++`, with all warnings as errors. Returns its path.
fn compile(compiler: &str, language: &str, source: &str, options: &[&str]) -> PathBuf {
    let name = Path::new(source).file_stem().and_then(|name| name.to_str()).unwrap();
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{language}"));
    // Several tests run the same program. While one of them runs it, it cannot be written.
    static COMPILED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let mut compiled = COMPILED.lock().unwrap();
    if !compiled.insert(program.clone()) {
        return program;
    }
    let mut command = Command::new(compiler);
    command.args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1", "-g", "-pthread"]);
    command.arg(format!("-std={language}")).arg("-I").arg(interface().join("include")).args(options);
    command.arg(interface().join(source)).arg("-o").arg(&program);
    if !options.contains(&"-c") {
        // Cargo makes it there in any case, and links it to the parent folder only if it was asked for this package.
        command.arg(built().join("deps/libtowline_c.a")).args(["-ldl", "-lm"]);
    }
    let output = command.output().unwrap_or_else(|why| panic!("{compiler}: {why}: install a C compiler"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    program
}

/// Runs a program under the launcher. Returns the lines of its output, sorted.
fn run(program: &Path, ranks: u32, transport: &str, arguments: &[&str]) -> Vec<String> {
    let mut command = Command::new(built().join("towline"));
    command.args(["run", "--timeout", "300", "--transport", transport, "-n", &ranks.to_string(), "--no-prefix", "--"]);
    let output = command.arg(program).args(arguments).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{command:?}: {}: {said}", output.status);
    let mut lines: Vec<_> = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn the_header_is_c_and_cxx() {
    for (compiler, language) in [("cc", "c11"), ("cc", "c17"), ("c++", "c++20")] {
        let language_of_file = if language.starts_with("c++") { "c++" } else { "c" };
        compile(compiler, language, "include/towline.h", &["-x", language_of_file, "-fsyntax-only", "-c"]);
    }
}

#[test]
fn each_call_does_what_its_comment_says_and_wrong_ones_are_refused() {
    let program = compile("cc", "c11", "tests/calls.c", &[]);
    let output = Command::new(&program).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout, b"done\n");
    for transport in ["sm", "tcp", "udp"] {
        assert_eq!(run(&program, 2, transport, &["two"]), ["done", "done"], "{transport}");
    }
}

#[test]
fn the_examples_work_with_any_number_of_ranks() {
    let (ring, runtime) =
        (compile("cc", "c11", "examples/ring.c", &[]), compile("cc", "c11", "examples/runtime.c", &[]));
    for ranks in [1, 2, 5] {
        let sum: u32 = (0..ranks).sum();
        assert_eq!(run(&ring, ranks, "sm", &[]), [format!("the token went round {ranks} ranks and is {sum}")]);
        let lines = (0..ranks).map(|rank| {
            format!("rank {rank}: hello from rank 0; {ranks} ranks, and the sum of their numbers is {sum}")
        });
        assert_eq!(run(&runtime, ranks, "tcp", &[]), lines.collect::<Vec<_>>());
    }
}

#[test]
fn processes_that_exchange_by_functions_of_their_own_form_a_job() {
    let program = compile("cc", "c11", "examples/exchange.c", &[]);
    for transport in ["sm", "tcp"] {
        let mut command = Command::new(&program);
        let output = command.arg("3").env("TOWLINE_TRANSPORTS", transport).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{transport}: {}: {said}", output.status);
        assert_eq!(output.stdout, b"the token went round 3 ranks and is 3\n", "{transport}");
    }
}
