//! Options of `towline run` for output, input and places of ranks, with real processes on this host. "Other hosts" are
//! reached by a remote shell that runs everything here.

mod script;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Command, Output, Stdio};

use script::Folder;

fn towline<S: AsRef<str>>(arguments: &[S], line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_towline"));
    command.arg("run").args(arguments.iter().map(AsRef::as_ref));
    command.args(["--", "sh", "-c", line]).stdin(Stdio::null());
    command
}

fn run<S: AsRef<str>>(arguments: &[S], line: &str) -> Output {
    towline(arguments, line).output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// A job with its input. Returns its output.
fn fed<S: AsRef<str>>(arguments: &[S], line: &str, input: Vec<u8>) -> Output {
    let mut command = towline(arguments, line);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A job may end before it has read its input.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

#[test]
fn long_lines_of_several_ranks_do_not_mix_and_are_not_split() {
    const LONG: usize = 50_000_000;
    // Each rank prints two long lines on each stream, which are the same file here, in pieces, with short lines between
    // them.
    let line = "long() { head -c 50000000 /dev/zero | tr '\\0' $TOWLINE_RANK; echo; }
        long; echo short; long >&2; echo short >&2; long";
    let folder = Folder::new("long-lines", "");
    let file = fs::File::create(folder.path("all")).unwrap();
    let mut command = towline(&["-n", "2"], line);
    let status = command.stdout(file.try_clone().unwrap()).stderr(file).status().unwrap();
    assert_eq!(status.code(), Some(0));
    let mut found = [(0, 0); 2];
    for text in BufReader::new(fs::File::open(folder.path("all")).unwrap()).split(b'\n').map(Result::unwrap) {
        let rank = usize::from(text[1] - b'0');
        let rest = text.strip_prefix(format!("[{rank}] ").as_bytes()).expect("a label");
        if rest == b"short" {
            found[rank].0 += 1;
        } else {
            assert!(rest.len() == LONG && rest.iter().all(|byte| *byte == b'0' + rank as u8), "{}", rest.len());
            found[rank].1 += 1;
        }
    }
    assert_eq!(found, [(2, 3); 2]);
}

/// Both standard streams are one pipe. The launcher prints a long line, and stops in the middle, since nobody reads. Then it
/// has a message of its own to print.
#[test]
fn the_launchers_own_messages_are_not_inside_a_line() {
    let folder = Folder::new("own-messages", "");
    let line = "case $TOWLINE_RANK in
        0) head -c 5000000 /dev/zero | tr '\\0' x; echo;;
        1) until [ -e $FOLDER/go ]; do sleep 0.02; done; exit 3;;
        esac";
    let (read, write) = rustix::pipe::pipe().unwrap();
    let mut command = towline(&["-n", "2", "--keep-going", "-e", &format!("FOLDER={}", folder.path(""))], line);
    command.stdout(write.try_clone().unwrap()).stderr(write);
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut from = fs::File::from(read);
    let mut all = vec![0; 1000];
    from.read_exact(&mut all).unwrap();
    fs::write(folder.path("go"), "").unwrap();
    from.read_to_end(&mut all).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3));
    let text = String::from_utf8(all).unwrap();
    let lines: Vec<_> = text.lines().map(|line| (line.len(), &line[..9])).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines.contains(&(5_000_004, "[0] xxxxx")), "{lines:?}");
}

#[test]
fn a_line_above_the_documented_size_is_split_with_a_mark() {
    let max = towline_bootstrap::launch::LINE_MAX;
    let line = format!("head -c {max} /dev/zero; echo; head -c {} /dev/zero; echo; echo next", max + 3);
    let output = run(&["-n", "1"], &line);
    let lines: Vec<_> = output.stdout.split(|byte| *byte == b'\n').map(|line| (line.len(), line.get(..5))).collect();
    let label = |text: &'static str| text.as_bytes().get(..5);
    let whole = (max + 4, label("[0] \0"));
    assert_eq!(lines, [whole, whole, (8, label("[0+] ")), (8, label("[0] n")), (0, None)]);
}

#[test]
fn a_tag_names_rank_and_stream_as_open_mpi_does() {
    let output = run(&["-n", "2", "--tag-output"], "echo out; echo err >&2");
    assert_eq!(sorted(&out(&output)), ["[1,0]<stdout>:out", "[1,1]<stdout>:out"]);
    assert_eq!(sorted(&err(&output)), ["[1,0]<stderr>:err", "[1,1]<stderr>:err"]);
}

#[test]
fn each_rank_writes_to_files_of_its_own() {
    let folder = Folder::new("files", "node0 slots=2\nlocalhost slots=2\n");
    let output = folder.path("made/here");
    fs::create_dir_all(&output).unwrap();
    fs::write(format!("{output}/rank.1.err"), "of an earlier job").unwrap();
    let line = "printf \"out $TOWLINE_RANK\\nno end\"; [ $TOWLINE_RANK = 2 ] && printf 'bad\\0' >&2; exit 0";
    for hosts in [vec!["-n".to_string(), "4".to_string()], folder.hosts().to_vec()] {
        let done = run(&[&hosts[..], &["--output".into(), output.clone()]].concat(), line);
        assert_eq!((code(&done), out(&done).as_str(), err(&done).as_str()), (Some(0), "", ""));
        for rank in 0..4 {
            let read = |end| fs::read_to_string(format!("{output}/rank.{rank}.{end}")).unwrap();
            assert_eq!(read("out"), format!("out {rank}\nno end"));
            assert_eq!(read("err"), if rank == 2 { "bad\0" } else { "" });
        }
        assert_eq!(fs::read_dir(&output).unwrap().count(), 8);
    }
}

#[test]
fn output_that_cannot_be_written_ends_the_job_with_the_reason() {
    let done = run(&["-n", "1", "--output", "/proc/nowhere"], "true");
    assert_eq!(code(&done), Some(2));
    assert!(err(&done).contains("--output /proc/nowhere: cannot write"), "{}", err(&done));
    let done = run(&["-n", "1", "--output", "/etc/passwd"], "true");
    assert_eq!(code(&done), Some(2));
    let words = ["--output /etc/passwd", "a directory is needed", "name another path"];
    assert!(words.iter().all(|word| err(&done).contains(word)), "{}", err(&done));
    // A full device.
    let folder = Folder::new("full", "");
    std::os::unix::fs::symlink("/dev/full", folder.path("rank.0.out")).unwrap();
    let done = run(&["-n", "1", "--output", &folder.path("")], "echo lost; exec sleep 1000");
    assert_eq!(code(&done), Some(1));
    assert!(err(&done).contains("rank.0.out: No space left"), "{}", err(&done));
}

#[test]
fn one_rank_or_all_or_none_read_the_standard_input() {
    let folder = Folder::new("input", "localhost\nnode0 slots=2\n");
    let here = ["-n".to_string(), "3".into(), "--no-prefix".into()].to_vec();
    let hosts = [&folder.hosts()[..], &["--no-prefix".into()]].concat();
    let line = "echo $TOWLINE_RANK $(cat)";
    for job in [here, hosts] {
        let with = |stdin: &str| [&job[..], &["--stdin".into(), stdin.to_string()]].concat();
        let got = |arguments: &[String]| {
            let output = fed(arguments, line, b"text\n".to_vec());
            assert_eq!(code(&output), Some(0), "{}", err(&output));
            sorted(&out(&output)).join("; ")
        };
        assert_eq!(got(&with("1")), "0; 1 text; 2");
        assert_eq!(got(&with("0")), "0 text; 1; 2");
        assert_eq!(got(&with("none")), "0; 1; 2");
        assert_eq!(got(&with("all")), "0 text; 1 text; 2 text");
        assert_eq!(got(&job), "0 text; 1; 2");
    }
    // The default reaches a rank 0 that is on another host, too.
    fs::write(folder.path("hosts"), "node0 slots=2\n").unwrap();
    let output = fed(&[&folder.hosts()[..], &["--no-prefix".into()]].concat(), line, b"far\n".to_vec());
    assert_eq!(sorted(&out(&output)), ["0 far", "1"], "{}", err(&output));
}

#[test]
fn all_ranks_get_a_long_input_at_their_own_speed() {
    let folder = Folder::new("long-input", "localhost slots=2\nnode0 slots=2\n");
    let input: Vec<u8> = (0..3_000_000u32).flat_map(u32::to_le_bytes).collect();
    let sum = {
        let mut command = Command::new("cksum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        command.stdin.take().unwrap().write_all(&input).unwrap();
        out(&command.wait_with_output().unwrap())
    };
    // Rank 0 reads nothing until the others have read everything, and rank 3 takes only a little.
    let line = "case $TOWLINE_RANK in
        0) until [ -e $FOLDER/1 ] && [ -e $FOLDER/2 ]; do sleep 0.05; done; cksum;;
        3) head -c 10 >$FOLDER/3;;
        *) cksum; touch $FOLDER/$TOWLINE_RANK;;
        esac";
    let arguments = [&folder.hosts()[..], &["--stdin", "all", "--no-prefix", "-e"].map(String::from)].concat();
    let arguments = [&arguments[..], &[format!("FOLDER={}", folder.path(""))]].concat();
    let output = fed(&arguments, line, input.clone());
    assert_eq!(out(&output), sum.repeat(3), "{}", err(&output));
    assert_eq!(fs::read(folder.path("3")).unwrap(), &input[..10]);
}

/// The processors of each rank, as its line `RANK on LIST`.
const PROCESSORS: &str = "echo $TOWLINE_RANK on $(sed -n 's/^Cpus_allowed_list:\\s*//p' /proc/self/status)";

/// Lists of processors that share a core, as this process may use them.
fn cores() -> BTreeSet<String> {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    let allowed: Vec<usize> = (0..rustix::thread::CpuSet::MAX_CPU).filter(|at| allowed.is_set(*at)).collect();
    let core = |at: &usize| {
        let list = format!("/sys/devices/system/cpu/cpu{at}/topology/thread_siblings_list");
        fs::read_to_string(list).map_or(at.to_string(), |text| text.trim().into())
    };
    allowed.iter().map(core).collect()
}

#[test]
fn each_rank_is_bound_to_a_core_of_its_own() {
    let folder = Folder::new("bound", "node0 slots=1\nlocalhost slots=1\n");
    let all = cores();
    let ranks = all.len().min(2);
    let output = run(&["-n", &ranks.to_string(), "--no-prefix", "--bind-to", "core"], PROCESSORS);
    assert_eq!(code(&output), Some(0), "{}", err(&output));
    let got: BTreeSet<_> = out(&output).lines().map(|line| line.split_once(" on ").unwrap().1.to_string()).collect();
    // Processors that this process may not use are missing in the list.
    assert_eq!(got.len(), ranks, "{got:?} of {all:?}");
    // On each host, the first rank gets the first core.
    let output =
        run(&[&folder.hosts()[..], &["--no-prefix", "--bind-to", "core"].map(String::from)].concat(), PROCESSORS);
    let text = out(&output);
    let mut places = text.lines().map(|line| line.split_once(" on ").unwrap().1);
    assert_eq!(places.next(), places.next(), "{text}{}", err(&output));
    // Without the option, ranks keep the processors of the launcher.
    let output = run(&["-n", "1", "--no-prefix", "--bind-to", "none"], PROCESSORS);
    let mine = fs::read_to_string("/proc/self/status").unwrap();
    let mine = mine.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    assert_eq!(out(&output), format!("0 on {mine}\n"));
}

#[test]
fn more_ranks_than_cores_cannot_have_cores_of_their_own() {
    let ranks = (cores().len() + 1).to_string();
    let folder = Folder::new("too-few-cores", &format!("node0 slots={ranks}\n"));
    for option in [["--bind-to", "core"], ["--map-by", "core"]] {
        let output = run(&[&["-n", &ranks][..], &option].concat(), "echo started");
        assert_eq!((code(&output), out(&output).as_str()), (Some(2), ""), "{option:?}");
        assert!(err(&output).contains(&format!("cores for {ranks} ranks")), "{}", err(&output));
        let output = run(&[&folder.hosts()[..], &option.map(String::from)].concat(), "echo started");
        assert_eq!((code(&output), out(&output).as_str()), (Some(1), ""), "{option:?}");
        let told = err(&output);
        assert!(told.contains("host node0: ") && told.contains(&format!("cores for {ranks} ranks")), "{told}");
    }
}

#[test]
fn ranks_are_mapped_to_hosts() {
    let folder = Folder::new("mapped", "node0 slots=3\nnode1 slots=1\nlocalhost slots=3\n");
    let line = "echo $TOWLINE_RANK $TOWLINE_HOST $TOWLINE_LOCAL";
    let on = |map: &str, ranks: &str| {
        let options = ["--map-by", map, "-n", ranks, "--no-prefix"].map(String::from);
        let output = run(&[&folder.hosts()[..], &options].concat(), line);
        assert_eq!(code(&output), Some(0), "{}", err(&output));
        sorted(&out(&output)).join("; ")
    };
    assert_eq!(on("slot", "4"), "0 node0 0-2; 1 node0 0-2; 2 node0 0-2; 3 node1 3");
    let turns = "0 node0 0,3; 1 node1 1; 2 localhost 2,4; 3 node0 0,3; 4 localhost 2,4";
    assert_eq!((on("node", "5").as_str(), on("host", "5").as_str()), (turns, turns));
}

#[test]
fn impossible_options_are_refused_with_the_reason_before_a_rank_starts() {
    let empty = Folder::new("empty", "# nothing\n\n");
    let hosts = empty.path("hosts");
    for (arguments, words) in [
        (&["-n", "2", "--bind-to", "socket"][..], &["socket", "core or none"][..]),
        (&["-n", "2", "--map-by", "numa"], &["numa", "slot, core or node"]),
        (&["-n", "2", "--stdin", "some"], &["some", "a rank, all or none"]),
        (&["-n", "2", "--stdin", "2"], &["rank 2", "2 ranks, counted from 0"]),
        (&["-n", "1", "--stdin", "1"], &["rank 1", "1 rank, counted from 0"]),
        (&["-n", "2", "--report-file", "/nonexistent/x"], &["--report-file /nonexistent/x", "make what is missing"]),
        (&["-n", "2", "--report-file", "/"], &["--report-file /", "name a file"]),
        (&["--hosts", "/nonexistent"], &["--hosts /nonexistent", "check the path"]),
        (&["--hosts", "/"], &["--hosts /", "name a file"]),
        (&["-n", "2", "--rsh", "ssh"], &["--hosts"]),
        (&["-n", "2", "--restart", "-1"], &["--restart", "possible: 0 to 4294967295"]),
        (&["-n", "-1"], &["--ranks", "it is below 1; possible: 1 to 1048576"]),
        (&["-n", "2", "-e", ""], &["--env", "no name", "NAME=VALUE"]),
        (&["-n", "2", "-e", "=5"], &["--env", "no name", "NAME=VALUE"]),
        (&["-n", "2", "--tag-output", "--no-prefix"], &["--tag-output", "--no-prefix"]),
        (&["-n", "2", "--tag-output", "--output", "x"], &["--tag-output", "--output"]),
        (&["-n", "2", "--hosts", &hosts], &["empty-", "names no host"]),
    ] {
        let output = run(arguments, "echo started");
        let told = err(&output);
        assert_eq!((code(&output), out(&output).as_str()), (Some(2), ""), "{arguments:?}: {told}");
        assert!(words.iter().all(|word| told.contains(word)), "{arguments:?}: {told}");
    }
}

#[test]
fn links_without_effect_are_named() {
    for (transport, links, warned) in [("sm", "3", true), ("sm", "1", false), ("sm,tcp", "3", false)] {
        let output = run(&["-n", "1", "--transport", transport, "--links", links], "true");
        let told = err(&output);
        assert_eq!(code(&output), Some(0), "{told}");
        assert_eq!(told.contains("--links 3 has no effect with --transport sm"), warned, "{transport} {links}: {told}");
    }
}

#[test]
fn a_very_long_grace_time_is_possible() {
    let output = run(&["-n", "2", "--grace", "1e9"], "[ $TOWLINE_RANK = 1 ] && exit 3; exec sleep 1000");
    assert_eq!(code(&output), Some(3), "{}", err(&output));
}
