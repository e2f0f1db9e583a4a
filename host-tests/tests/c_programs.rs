//! C programs over the C interface: they are compiled by the system's compiler, and run as real processes.

mod btl_rows;
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

/// Runs a test program by itself, and then two ranks of it over each transport, with these arguments.
fn check(name: &str, of_two: &[&[&str]]) {
    let program = compile("cc", "c11", &format!("tests/{name}.c"), &[]);
    let output = Command::new(&program).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout, b"done\n");
    for transport in ["sm", "tcp", "udp"] {
        for arguments in of_two {
            assert_eq!(run(&program, 2, transport, arguments), ["done", "done"], "{transport}, {arguments:?}");
        }
    }
}

#[test]
fn each_call_does_what_its_comment_says_and_wrong_ones_are_refused() {
    check("calls", &[&["two"]]);
}

#[test]
fn windows_do_what_their_comments_say_and_wrong_calls_are_refused() {
    check("windows", &[&["two"]]);
}

/// At the lowest and at the highest thread level.
#[test]
fn programs_sleep_in_loops_of_their_own_and_find_counters_by_name() {
    check("sleep", &[&["two", "0"], &["two", "3"]]);
}

#[test]
fn calls_in_forked_children_are_refused_or_work_and_none_hangs() {
    check("forks", &[]);
}

#[test]
fn workers_do_what_their_comments_say_and_wrong_calls_are_refused() {
    check_pair("workers");
}

#[test]
fn the_btl_face_does_what_its_comments_say_and_wrong_calls_are_refused() {
    check_pair("btl_calls");
}

/// Runs a program that makes a second process itself, over each transport.
fn check_pair(name: &str) {
    let program = compile("cc", "c11", &format!("tests/{name}.c"), &[]);
    for transport in ["sm", "tcp", "udp"] {
        let output = Command::new(&program).arg(transport).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{transport}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.stdout, b"done\n", "{transport}");
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
fn the_examples_of_windows_and_event_loops_work_with_any_number_of_ranks() {
    let (window, event_loop) =
        (compile("cc", "c11", "examples/window.c", &[]), compile("cc", "c11", "examples/event_loop.c", &[]));
    for (ranks, transport) in [1, 2, 5].into_iter().flat_map(|ranks| ["sm", "tcp"].map(|transport| (ranks, transport)))
    {
        let sum: u32 = (0..100).map(|task| task * task).sum();
        let expected = [
            format!("100 tasks are done, and the sum of their results is {sum}"),
            "the rank that was first finds itself there".into(),
        ];
        assert_eq!(run(&window, ranks, transport, &[]), expected, "{ranks} ranks over {transport}");
        let lines = (0..ranks).flat_map(|rank| (0..3).map(move |line| format!("rank {rank}: line {line}")));
        assert_eq!(
            run(&event_loop, ranks, transport, &[]),
            lines.collect::<Vec<_>>(),
            "{ranks} ranks over {transport}"
        );
    }
}

#[test]
fn the_shared_library_exports_the_functions_of_the_header_with_a_version() {
    let header = std::fs::read_to_string(interface().join("include/towline.h")).unwrap();
    let name_of = |line: &str| {
        let (before, _) = line.split_once('(')?;
        let name = before.rsplit([' ', '*']).next().filter(|name| name.starts_with("towline_"))?;
        (!line.starts_with([' ', '#', '/'])).then(|| name.to_owned())
    };
    let mut names: Vec<_> = header.lines().filter_map(name_of).collect();
    names.sort();
    assert!(names.len() > 50 && names.iter().any(|name| name == "towline_abort"), "{names:?}");

    let library = built().join("deps/libtowline_c.so");
    let constant = |name: &str| {
        let line = header.lines().find_map(|line| line.strip_prefix(&format!("#define {name} "))).unwrap();
        line.trim().parse::<u32>().unwrap()
    };
    let node = format!("TOWLINE_{}.{}", constant("TOWLINE_ABI_MAJOR"), constant("TOWLINE_ABI_MINOR"));
    let expected: Vec<_> = names.iter().map(|name| format!("{name}@@{node}")).collect();
    assert_eq!(exported(&library), expected);

    // A program that was linked with the library asks for that version, and runs with it.
    let link = [library.to_str().unwrap(), "-Wl,--no-as-needed"];
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("versioned-ring");
    let mut command = Command::new("cc");
    command.arg("-I").arg(interface().join("include")).arg(interface().join("examples/ring.c")).args(link);
    assert!(command.arg("-o").arg(&program).status().unwrap().success(), "{command:?}");
    assert!(read_elf(&["--version-info"], &program).contains(&format!("Name: {node}")));
    assert_eq!(run(&program, 2, "sm", &[]), ["the token went round 2 ranks and is 1"]);
}

/// The names that a library exports, with their versions, sorted. The node itself is one of the symbols, and is left out.
fn exported(library: &Path) -> Vec<String> {
    let symbols = read_elf(&["--wide", "--dyn-syms"], library);
    let fields = symbols.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let defined = fields
        .filter(|fields| fields.len() >= 8 && fields[0].ends_with(':') && !["UND", "ABS", "Ndx"].contains(&fields[6]));
    let mut names: Vec<_> = defined.map(|fields| fields[7].to_owned()).collect();
    names.sort();
    names
}

fn read_elf(options: &[&str], file: &Path) -> String {
    let output = Command::new("readelf").args(options).arg(file).output().expect("readelf: install binutils");
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
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
