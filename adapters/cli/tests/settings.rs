//! A setting that cannot be kept is an error in programs, in the launcher and in `towline info`. Other failures, and unknown
//! variables, are warnings once per job.

use std::process::{Command, Output};

use towline::Config;

/// A text that no setting but a free text accepts.
const IMPOSSIBLE: &str = "x/y:z";

fn towline(line: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_towline"));
    command.args(line.split_whitespace()).envs(variables.iter().copied()).output().unwrap()
}

/// A job of two ranks of a program that uses Towline.
fn job(options: &str, variables: &[(&str, &str)]) -> Output {
    towline(&format!("run -n 2 {options} -- {} info-rank", env!("CARGO_BIN_EXE_towline")), variables)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn an_impossible_value_of_any_setting_is_an_error_in_programs_launcher_and_info() {
    for setting in Config::default().settings_from(|_| None).unwrap() {
        let (variable, name) = ((setting.variable, IMPOSSIBLE), setting.name);
        if name == "pmix_library" {
            continue; // only the loader knows, and only a PMIx launcher makes it load the library
        }
        if name == "tcp.host_congestion" {
            // Only the kernel knows the names, so a rank says it.
            let output = job("--transport tcp", &[variable]);
            let said = said(&output);
            assert!(
                !output.status.success() && said.contains("TOWLINE_TCP_HOST_CONGESTION: `x/y:z` is refused"),
                "{said}"
            );
            continue;
        }
        for line in ["run -n 2 -- true", "info", "info-rank"] {
            let output = towline(line, &[variable]);
            let said = said(&output);
            assert!(!output.status.success() && output.stdout.is_empty(), "{line} {name}: {said}");
            for part in [setting.variable, "`x/y:z` ", "; possible: ", &setting.possible] {
                assert!(said.contains(part), "{line} {name}: {said}");
            }
        }
    }
}

#[test]
fn a_setting_that_this_machine_makes_impossible_is_an_error_although_no_user_named_the_transport() {
    for (variable, value) in [
        ("TOWLINE_SM_DIRECTORY", "/nowhere/at/all"),
        ("TOWLINE_TCP_INCLUDE", "nosuch0"),
        ("TOWLINE_TCP_EXCLUDE", "0.0.0.0/0,::/0"),
        ("TOWLINE_TCP_SOCKET_BYTES", "1073741824"),
    ] {
        let output = job("", &[(variable, value)]);
        let said = said(&output);
        assert!(!output.status.success() && said.contains(variable), "{variable}: {said}");
    }
}

#[test]
fn a_transport_that_fails_for_another_reason_is_left_out_with_one_warning() {
    // In a namespace in which nobody can write to shared memory.
    let of = |strict: &str| {
        let line = "mount -t tmpfs -o ro none /dev/shm || { echo no mount >&2; exit 99; }; exec \"$0\" \"$@\"";
        let me = env!("CARGO_BIN_EXE_towline");
        let mut command = Command::new("unshare");
        command.args(["-rm", "sh", "-c", line, me, "run", "-n", "4", "-e", strict, "--", me, "info-rank"]);
        command.output().unwrap()
    };
    let output = of("TOWLINE_STRICT=false");
    let text = said(&output);
    if output.status.code() == Some(99) || text.contains("unshare") {
        eprintln!("skipped: namespaces cannot be made here: {text}");
        return;
    }
    assert!(output.status.success(), "{text}");
    assert_eq!(
        text.matches("warning: transport sm does not work here, and is left out (all ranks): ").count(),
        1,
        "{text}"
    );
    let output = of("TOWLINE_STRICT=true");
    let text = said(&output);
    assert!(!output.status.success() && text.contains("an error, since TOWLINE_STRICT is set"), "{text}");
}

#[test]
fn an_unknown_variable_is_named_once_by_the_launcher_or_by_the_program() {
    let unknown = [("TOWLINE_SPINN_US", "1"), ("TOWLINE_SPIN_US", "2")];
    let meant = "did you mean TOWLINE_SPIN_US?";
    for output in [job("", &unknown), job("-e TOWLINE_SPINN_US=1", &[]), towline("info-rank", &unknown)] {
        let said = said(&output);
        assert!(output.status.success(), "{said}");
        assert_eq!((said.matches("TOWLINE_SPINN_US").count(), said.matches(meant).count()), (1, 1), "{said}");
    }
    // A variable that only ranks have is reported by rank 0.
    let line = "run -n 3 -- env TOWLINE_SPINN_US=1";
    let output = towline(&format!("{line} {} info-rank", env!("CARGO_BIN_EXE_towline")), &[]);
    let text = said(&output);
    assert!(text.contains("(all ranks)") && text.matches(meant).count() == 1, "{text}");
    for output in [
        job("", &[unknown[0], ("TOWLINE_STRICT", "true")]),
        towline("info-rank", &[unknown[0], ("TOWLINE_STRICT", "true")]),
    ] {
        let said = said(&output);
        assert!(!output.status.success() && said.contains("an error, since TOWLINE_STRICT is set"), "{said}");
    }
}

#[test]
fn variables_that_contradict_the_launcher_are_refused() {
    for (options, words) in [
        ("-e TOWLINE_RANK=3", ["TOWLINE_RANK", "leave it out"]),
        ("-e TOWLINE_LINKS=3 --links 2", ["-e TOWLINE_LINKS=3", "--links 2"]),
        ("-e TOWLINE_TRANSPORTS=sm --transport tcp", ["-e TOWLINE_TRANSPORTS=sm", "--transport tcp"]),
    ] {
        let output = job(options, &[]);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
    }
    let output = job("-e NO_SUCH_VARIABLE", &[]);
    assert!(output.status.success() && said(&output).contains("NO_SUCH_VARIABLE is not set here"), "{}", said(&output));
}

#[test]
fn spellings_of_mpirun_start_a_job() {
    for options in ["-np 2", "--np 2", "-c 2", "-np=2"] {
        let output = towline(&format!("run --no-prefix {options} -- echo here"), &[]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "here\nhere\n", "{options}: {}", said(&output));
    }
    let output = towline("run --rank 2 -- echo here", &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("did you mean `--ranks`?"), "{}", said(&output));
}

#[test]
fn a_hosts_file_without_hosts_is_an_error() {
    let file = std::env::temp_dir().join(format!("towline-no-hosts-{}", std::process::id()));
    std::fs::write(&file, "# nothing\n\n").unwrap();
    let output = towline(&format!("run -n 2 --hosts {} -- echo here", file.display()), &[]);
    std::fs::remove_file(&file).unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), &b""[..]), "{}", said(&output));
    assert!(said(&output).contains("no host"), "{}", said(&output));
}

/// The program of the ranks that [`a_second_init_names_contexts`] starts.
#[test]
#[ignore = "started by another test as its ranks"]
fn as_rank() {
    let Ok(role) = std::env::var("ROLE") else { return };
    let world = towline::init().unwrap();
    if role == "child" {
        unreachable!("the rank has joined already");
    }
    let again = towline::init().map(drop).unwrap_err();
    assert!(matches!(again, towline::SetupError::AlreadyJoined { rank } if rank == world.rank()), "{again}");
    eprintln!("said: {again}");
    if world.rank() == 0 {
        let mut child = Command::new(std::env::current_exe().unwrap());
        let output =
            child.args(["--exact", "as_rank", "--ignored", "--nocapture"]).env("ROLE", "child").output().unwrap();
        eprintln!("child: {}", String::from_utf8_lossy(&output.stderr).replace('\n', " "));
    }
    world.finish().unwrap();
}

#[test]
fn a_second_init_names_contexts() {
    let me = std::env::current_exe().unwrap();
    let line = format!("run -n 2 -e ROLE=twice -- {} --exact as_rank --ignored --nocapture", me.display());
    let output = towline(&line, &[]);
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    assert_eq!(text.matches("`Builder::contexts`").count(), 2, "{text}");
    // Another process in the place of a rank is told whose fault it is.
    assert!(text.contains("rank 0 is connected already") && text.contains("unset TOWLINE_RANK"), "{text}");
    // A process that no launcher started may make any number of worlds.
    let alone = [towline::init().unwrap(), towline::init().unwrap()];
    assert!(alone.into_iter().all(|world| world.finish().is_ok()));
}

#[test]
fn wrong_values_of_options_are_answered_by_possible_ones() {
    for (line, words) in [
        ("soak --minutes 0", ["not a time", "above 0, and at most 1000000 minutes"]),
        ("soak --minutes -1", ["-1", "above 0, and at most 1000000 minutes"]),
        ("soak --sim --threads 0", ["below 1", "possible: 1 to 4096"]),
        ("run -n x true", ["not a whole number", "possible: 1 to 1048576"]),
        ("run -n 0 true", ["below 1", "possible: 1 to 1048576"]),
        ("run -n 2 --links 65 true", ["above 64", "1 to 64"]),
        ("run -n 2 --grace 1e19 false", ["not a time", "possible: 0 to"]),
        ("run -n 2 --timeout -1 true", ["-1", "possible: 0 to"]),
        ("run -n 2 nonesuch", ["cannot start `nonesuch`", "./NAME"]),
        ("soak --jobs 0", ["below 1", "possible: 1 to"]),
        ("soak --jobs -1", ["below 1", "possible: 1 to"]),
        ("soak --sim --seeds 0", ["below 1", "possible: 1 to"]),
        ("soak --seed x", ["not a whole number", "possible: 0 to"]),
        ("soak --from -1", ["below 0", "possible: 0 to"]),
        ("soak --most 1T", ["not a whole number", "possible: 0 to 1073741824"]),
        ("soak --most 99999999999999", ["above 1073741824", "possible: 0 to 1073741824"]),
        ("perf --transport tpc", ["(did you mean `tcp`?); possible", "sm, tcp, udp, verbs"]),
        ("perf --mode late", ["late", "latency"]),
        ("perf --repeat x", ["not a whole number", "1 to 10000"]),
    ] {
        let output = towline(line, &[]);
        let said = said(&output);
        assert!(!output.status.success() && output.stdout.is_empty(), "{line}: {said}");
        assert!(words.iter().all(|word| said.contains(word)), "{line}: {said}");
        assert!(!said.contains("panicked") && !said.contains("invalid digit"), "{line}: {said}");
    }
}
