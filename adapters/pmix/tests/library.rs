//! A rank over a library that stands for PMIx: what is called, and what a library that does wrong leads to. Each case is a process of
//! its own, since it has an environment of its own. `fake.c` is the library.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use towline_bootstrap::{Exchange, ExchangeFailure, RankEnd};
use towline_pmix::{Error, Pmix};

/// The variable that has the path of the library, in a process of a case. Without it a case does nothing.
const LIBRARY: &str = "TOWLINE_TEST_PMIX_LIBRARY";

fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libfake_pmix.so");
        let mut command = Command::new("cc");
        command.args([
            "-std=c11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-D_GNU_SOURCE",
            "-shared",
            "-fPIC",
            "-pthread",
            "-o",
        ]);
        command.arg(&library).arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake.c"));
        assert!(command.status().expect("a C compiler").success(), "{command:?}");
        library
    })
}

/// Runs `case` in a process with this library, in which the given thing goes wrong. Returns what it prints, line by line.
fn lines_of(case: &str, wrong: &str) -> Vec<String> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", case, "--nocapture", "--quiet", "--test-threads=1"]);
    command.env(LIBRARY, library()).env("FAKE_PMIX", wrong).env("PMIX_NAMESPACE", "job.1").env("PMIX_RANK", "0");
    command.env_remove("OMPI_MCA_orte_launch");
    let output = command.stdin(Stdio::null()).output().unwrap();
    let [said, why] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success(), "{case}, {wrong}: {said}{why}");
    let is_of_case = |line: &&str| {
        !(line.is_empty() || line.starts_with("running") || line.starts_with("test result") || *line == ".")
    };
    said.lines().filter(is_of_case).map(|line| line.trim_start_matches('.').to_string()).collect()
}

/// The rank of a case; `None` if the test runs by itself.
fn start() -> Option<Result<Pmix, Error>> {
    std::env::var(LIBRARY).ok().map(|library| Pmix::start(&library))
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(300)
}

#[test]
fn a_rank_gathers_by_put_fence_and_get_and_takes_leave() {
    let lines = lines_of("whole_life", "");
    let expected = [
        "register 9 codes",
        "rank 0 of 2, local [0, 1]",
        "put towline.0",
        "[[1, 2, 3], [1, 2]]",
        "put towline.1",
        "[[9], []]",
        "notify -3021 of job.1:0 in 3",
        "deregister 5",
        "finalize",
    ];
    assert_eq!(lines, expected);
    assert!(lines_of("whole_life", "at once").contains(&"[[9], []]".into()));
    assert!(lines_of("whole_life", "peers").contains(&"rank 0 of 2, local none".into()));
}

#[test]
fn whole_life() {
    let Some(pmix) = start() else { return };
    let mut pmix = pmix.unwrap();
    let local = pmix.local_ranks().map_or_else(|| "none".into(), |ranks| format!("{ranks:?}"));
    println!("rank {} of {}, local {local}", pmix.rank(), pmix.size());
    println!("{:?}", pmix.gather(&[1, 2, 3], soon()).unwrap());
    pmix.fence(soon()).unwrap();
    println!("{:?}", pmix.gather(&[9], soon()).unwrap());
    assert_eq!(pmix.next_end(), None);
    pmix.leave().unwrap();
}

#[test]
fn a_failed_rank_is_heard_of_once_and_an_abort_passes_the_text_on() {
    let lines = lines_of("failure_and_abort", "dead");
    let expected = ["register 9 codes", "handled -331 once", "handled -331 twice", "abort 7: the input makes no sense"];
    assert_eq!(lines, expected);
}

#[test]
fn failure_and_abort() {
    let Some(pmix) = start() else { return };
    let mut pmix = pmix.unwrap();
    assert_eq!((pmix.next_end(), pmix.next_end()), (Some(RankEnd { rank: 1, died: true }), None));
    // The fence will never end, and is given up long before its deadline.
    assert_eq!(pmix.fence(soon()), Err(ExchangeFailure::Timeout));
    pmix.abort(7, "the input makes\0no sense").unwrap();
}

#[test]
fn files_are_named_to_the_launcher_until_the_rank_takes_leave() {
    let asked = "pmix.reg.cleanup /one,/two";
    for (wrong, answer) in [("", &["released"][..]), ("refused", &["released"]), ("at once", &[])] {
        let expected = [&[asked], answer, &["deregister 5", "finalize"]].concat();
        assert_eq!(lines_of("clean_up", wrong)[1..], expected, "{wrong}");
    }
}

#[test]
fn clean_up() {
    let Some(pmix) = start() else { return };
    let mut pmix = pmix.unwrap();
    let clean_up = pmix.clean_up().unwrap();
    // A comma would end the path.
    let files = ["/one", "/with,comma", "/two"].map(PathBuf::from);
    clean_up(&files);
    clean_up(&["/only,with,comma"].map(PathBuf::from));
    pmix.finish().unwrap();
    clean_up(&files);
}

#[test]
fn what_the_library_does_wrong_is_an_error_that_says_so() {
    for (wrong, expected) in [
        ("init", "PMIx cannot connect to the launcher: UNREACHABLE (-25)"),
        ("size", "PMIx cannot tell the number of ranks: the value has another type"),
        ("fence", "PMIx cannot wait for the other ranks: UNREACHABLE (-25)"),
        ("refused", "PMIx cannot wait for the other ranks: UNREACHABLE (-25)"),
        ("stuck", "not all ranks have taken part in time"),
        ("type", "PMIx cannot get a value of another rank: the value has another type"),
        ("null", "PMIx cannot get a value of another rank: the value has another type"),
        ("finalize", "PMIx cannot take leave of the launcher: UNREACHABLE (-25)"),
    ] {
        let lines = lines_of("error", wrong);
        assert!(lines.iter().any(|line| line.contains(expected)), "{wrong}: {lines:?}");
    }
}

#[test]
fn error() {
    let Some(pmix) = start() else { return };
    let is_stuck = std::env::var("FAKE_PMIX").is_ok_and(|wrong| wrong == "stuck");
    let deadline = if is_stuck { Instant::now() } else { soon() };
    let tried = || -> Result<(), Box<dyn std::error::Error>> {
        let mut pmix = pmix?;
        pmix.gather(&[1], deadline)?;
        Ok(pmix.finish()?)
    };
    println!("{}", tried().unwrap_err());
}

#[test]
fn a_missing_library_says_where_it_was_looked_for() {
    for (path, expected) in
        [("/nowhere/libpmix.so", "/nowhere/libpmix.so"), ("libc.so.6", "has no function PMIx_Get_version")]
    {
        let why = towline_pmix::library_version(path).unwrap_err();
        assert!(matches!(&why, Error::Library(text) if text.contains(expected)), "{why}");
        assert!(why.to_string().contains("TOWLINE_PMIX_LIBRARY"), "{why}");
    }
    assert_eq!(towline_pmix::library_version(library().to_str().unwrap()), Ok("7.8.9".into()));
}
