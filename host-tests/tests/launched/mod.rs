//! Programs under a PMIx launcher: the `mpirun` of this system, if it is that of Open MPI.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use crate::programs;

/// The options with which the launcher lets ranks go on after another one has failed. `None`: there is no such launcher, and the
/// reason was printed.
fn launcher() -> Option<&'static [&'static str]> {
    static FOUND: OnceLock<Option<&'static [&'static str]>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let asked = Command::new("mpirun").arg("--version").output();
        let said =
            asked.map_or_else(|why| why.to_string(), |output| String::from_utf8_lossy(&output.stdout).into_owned());
        let library = Command::new(crate::built().join("towline")).args(["info", "start"]).output().unwrap();
        let library = String::from_utf8_lossy(&library.stdout).into_owned();
        if !library.contains("PMIx library   version") {
            println!("skipped: {library}");
            return None;
        }
        match said.split_whitespace().find(|word| word.starts_with(|letter: char| letter.is_ascii_digit())) {
            Some(version) if said.contains("Open MPI") && version.starts_with('4') => Some(&["--enable-recovery"]),
            Some(_) if said.contains("Open MPI") => Some(&["--runtime-options", "notifyerrors,recoverable"]),
            _ => {
                println!("skipped: no mpirun of Open MPI is installed: {}", said.lines().next().unwrap_or_default());
                None
            }
        }
    })
}

/// Runs a program on three ranks. The launcher may hang, and is killed then.
///
/// Each launcher has its own folder for temporary files. At its end, that of Open MPI 4.1 removes the folder that all launchers of a user
/// share, and another one that starts just then may fail (open-mpi/ompi, issue 8510).
fn mpirun(program: &Path, arguments: &[&str], transport: &str, options: &[&str]) -> Output {
    let temporary = tempfile::tempdir().unwrap();
    let mut command = Command::new("timeout");
    command
        .args(["--kill-after=5", "300", "mpirun", "-n", "3", "--oversubscribe"])
        .args(options)
        .arg(program)
        .args(arguments);
    for allow in ["OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT"] {
        command.env(allow, "1").env(format!("{allow}_CONFIRM"), "1");
    }
    command.env("TMPDIR", temporary.path()).env("TOWLINE_TRANSPORTS", transport).stdin(Stdio::null());
    command.output().unwrap_or_else(|why| panic!("{command:?}: {why}"))
}

fn sorted_lines(output: &Output) -> Vec<String> {
    let mut lines: Vec<_> = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn errors(output: &Output) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(&output.stderr)
}

#[test]
fn programs_in_rust_and_c_start_under_a_pmix_launcher() {
    if launcher().is_none() {
        return;
    }
    let rust = programs::build(&[&["-p", "towline", "--example", "ring"]]).join("examples/ring");
    let c = crate::compile("cc", "c11", "examples/ring.c", &[]);
    for transport in ["sm", "tcp"] {
        let output = mpirun(&rust, &[], transport, &[]);
        let lines = sorted_lines(&output);
        assert!(output.status.success(), "{transport}: {}", errors(&output));
        assert!(lines.len() == 1 && lines[0].starts_with("3 ranks, "), "{transport}: {lines:?}");
        let output = mpirun(&c, &[], transport, &[]);
        assert!(output.status.success(), "{transport}: {}", errors(&output));
        assert_eq!(sorted_lines(&output), ["the token went round 3 ranks and is 3"], "{transport}");
    }
}

#[test]
fn under_a_pmix_launcher_an_abort_ends_the_job_with_its_text() {
    if launcher().is_none() {
        return;
    }
    let program = crate::compile("cc", "c11", "tests/launched.c", &[]);
    let output = mpirun(&program, &["abort"], "tcp", &[]);
    assert_eq!(output.status.code(), Some(7), "{}", errors(&output));
    assert!(errors(&output).contains("towline: rank 1 ends the job: the input makes no sense"), "{}", errors(&output));
    assert_eq!(sorted_lines(&output), [""; 0]);
}

#[test]
fn under_a_pmix_launcher_receives_from_a_rank_that_has_ended_end() {
    let Some(recovery) = launcher() else { return };
    let program = crate::compile("cc", "c11", "tests/launched.c", &[]);
    let lines = |what| [0, 2].map(|rank| format!("rank {rank} of 3: {what}"));
    for transport in ["sm", "tcp"] {
        // What the launcher makes of the death is its own affair.
        let died = mpirun(&program, &["die"], transport, recovery);
        assert_eq!(sorted_lines(&died), lines("a rank was lost"), "{transport}: {}", errors(&died));
        let left = mpirun(&program, &["leave"], transport, &[]);
        assert!(left.status.success(), "{transport}: {}", errors(&left));
        assert_eq!(sorted_lines(&left), lines("a rank has finished"), "{transport}: {}", errors(&left));
    }
}

/// The launcher's daemon removes what the ranks left in shared memory.
#[test]
fn under_a_pmix_launcher_no_file_of_a_failed_job_stays() {
    if launcher().is_none() {
        return;
    }
    let program = crate::compile("cc", "c11", "tests/launched.c", &[]);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("clean-up-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let directory = format!("TOWLINE_SM_DIRECTORY={}", folder.display());
    for fault in ["die", "abort"] {
        let output = mpirun(&program, &[fault], "sm", &["-x", &directory]);
        let left: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(!output.status.success() && left.is_empty(), "{fault}: {left:?}: {}", errors(&output));
    }
    std::fs::remove_dir(&folder).unwrap();
}

#[test]
fn without_the_pmix_library_no_rank_becomes_a_job_of_its_own() {
    let program = crate::compile("cc", "c11", "examples/ring.c", &[]);
    let run = |bootstrap: &str| {
        let mut command = Command::new(&program);
        command.env("PMIX_NAMESPACE", "job.1").env("PMIX_RANK", "2").env("TOWLINE_PMIX_LIBRARY", "/nowhere/libpmix.so");
        command.env("TOWLINE_BOOTSTRAP", bootstrap).stdin(Stdio::null()).output().unwrap()
    };
    let refused = run("auto");
    assert!(!refused.status.success() && refused.stdout.is_empty(), "{:?}", sorted_lines(&refused));
    assert_eq!(sorted_lines(&run("own")), ["the token went round 1 ranks and is 0"]);
}
