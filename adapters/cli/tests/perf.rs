//! `towline perf` with real ranks. The tests do not check the figures, which depend on the machine.

mod script;

use std::collections::HashSet;
use std::fs;
use std::io::Write as _;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn towline(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_towline")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The value of a key in a line of JSON without nesting.
fn value<'l>(line: &'l str, key: &str) -> &'l str {
    let (_, rest) = line.split_once(&format!("\"{key}\":")).unwrap_or_else(|| panic!("no {key} in {line}"));
    rest.split([',', '}']).next().unwrap().trim_matches('"')
}

#[test]
fn all_transports_are_measured_and_each_value_is_a_line_of_json() {
    let file = std::env::temp_dir().join(format!("towline-perf-{}.json", std::process::id()));
    let path = file.to_str().unwrap();
    let output = towline(&["perf", "--quick", "--sizes", "0,8,100K", "--repeat", "1", "--json", path]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let mut seen = Vec::new();
    for line in json.lines() {
        assert_eq!(line.matches("\":").count(), 15, "{line}");
        let times =
            ["p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns"].map(|key| value(line, key).parse::<f64>().unwrap());
        assert!(times[0] > 0.0 && times.is_sorted(), "{line}");
        let number = |key| value(line, key).parse::<f64>().unwrap();
        let (quotient, ratio) = (number("value") / number("limit"), number("ratio"));
        assert!(number("value") > 0.0 && (quotient - ratio).abs() <= 0.01 * ratio + 1e-4, "{line}");
        seen.push(["transport", "mode", "bytes", "unit"].map(|key| value(line, key)).join(" "));
    }
    let expected = |transport: &str| {
        let rows = ["latency 0 ns", "latency 8 ns", "latency 102400 ns", "bandwidth 8 GB/s", "bandwidth 102400 GB/s"];
        rows.into_iter().chain(["rate 8 messages/s"]).map(|row| format!("{transport} {row}")).collect::<Vec<_>>()
    };
    assert_eq!(seen, [expected("sm"), expected("tcp")].concat());
    let table = text(&output.stdout);
    assert!(table.contains("100 KiB") && table.contains("the machine was steady in"), "{table}");
}

/// One-sided operations: over mapped memory, and by frames.
#[test]
fn puts_gets_and_atomics_are_measured_over_each_transport() {
    let file = std::env::temp_dir().join(format!("towline-perf-one-sided-{}.json", std::process::id()));
    let modes = "put,put-bandwidth,put-rate,get,get-bandwidth,fetch-add,add-rate";
    let arguments = ["perf", "--quick", "--transport", "sm,tcp,udp", "--mode", modes, "--sizes", "8,100K"];
    let output = towline(&[&arguments[..], &["--repeat", "1", "--json", file.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json = fs::read_to_string(&file).unwrap();
    fs::remove_file(&file).unwrap();
    let rows = |line| ["transport", "mode", "bytes", "unit"].map(|key| value(line, key)).join(" ");
    let rows: Vec<_> = json.lines().map(rows).collect();
    let sizes = |mode: &str, unit: &str| ["8", "102400"].map(|bytes| format!("{mode} {bytes} {unit}"));
    let expected = |transport: &str| {
        let (put, puts, get, gets) =
            (sizes("put", "ns"), sizes("put-bandwidth", "GB/s"), sizes("get", "ns"), sizes("get-bandwidth", "GB/s"));
        let rate = |mode: &str| [format!("{mode} 8 operations/s")];
        let all = [&put[..], &puts, &rate("put-rate"), &get, &gets, &["fetch-add 8 ns".into()], &rate("add-rate")];
        all.concat().iter().map(|row| format!("{transport} {row}")).collect::<Vec<_>>()
    };
    assert_eq!(rows, ["sm", "tcp", "udp"].map(expected).concat());
    for line in json.lines() {
        assert!(["value", "limit"].iter().all(|key| value(line, key).parse::<f64>().unwrap() > 0.0), "{line}");
    }
}

#[test]
fn several_links_give_the_same_rows() {
    let file = std::env::temp_dir().join(format!("towline-perf-links-{}.json", std::process::id()));
    let arguments = ["perf", "--quick", "--transport", "tcp", "--links", "3", "--sizes", "8,1M", "--repeat", "1"];
    let output = towline(&[&arguments[..], &["--json", file.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json = fs::read_to_string(&file).unwrap();
    fs::remove_file(&file).unwrap();
    let rows = |line| ["transport", "mode", "bytes"].map(|key| value(line, key)).join(" ");
    let rows: Vec<_> = json.lines().map(rows).collect();
    let of = ["latency 8", "latency 1048576", "bandwidth 8", "bandwidth 1048576", "rate 8"];
    assert_eq!(rows, of.map(|row| format!("tcp {row}")));
    assert!(json.lines().all(|line| value(line, "value").parse::<f64>().unwrap() > 0.0), "{json}");
}

/// A run that is ended when its test ends or fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn each_of_three_links_carries_its_share_of_a_stream() {
    if Command::new("ss").arg("-V").output().is_err() {
        // Written directly, since the test runner hides the output of tests that pass.
        let _ = writeln!(std::io::stderr(), "skipped a test: ss is not installed (Debian: iproute2)");
        return;
    }
    // Far more repetitions than this test reads.
    let arguments = ["--transport", "tcp", "--links", "3", "--mode", "bandwidth", "--sizes", "4M", "--repeat", "10000"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_towline"));
    let command = command.arg("perf").args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    let mut perf = Running(command.spawn().unwrap());
    let limit = Instant::now() + Duration::from_secs(300);
    loop {
        let launcher = children(perf.0.id()).first().copied();
        let ranks = launcher.map(children).unwrap_or_default();
        let connections = ranks.first().map(|rank| connections(*rank)).unwrap_or_default();
        // Both ranks may connect at the same time. One of the two connections of a link is closed then, and has carried a hello only.
        // The plain socket of the limit is among the others.
        let in_use = connections.iter().filter(|bytes| **bytes > 1 << 20).count();
        assert!(in_use <= 4, "{connections:?}");
        if in_use == 4 && connections.iter().all(|bytes| *bytes > 16 << 20) {
            break;
        }
        assert!(Instant::now() < limit && perf.0.try_wait().unwrap().is_none(), "bytes carried: {connections:?}");
    }
}

/// The children of a process, in order.
fn children(of: u32) -> Vec<u32> {
    let all = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let is_child = |process: &u32| {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        // After the name, which may contain anything, come the state and the parent.
        stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)) == Some(&of.to_string())
    };
    let mut children: Vec<u32> = all.filter(is_child).collect();
    children.sort_unstable();
    children
}

/// Bytes that each TCP connection of a process has transferred.
fn connections(of: u32) -> Vec<u64> {
    let sockets = fs::read_dir(format!("/proc/{of}/fd")).into_iter().flatten();
    let sockets = sockets.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok()?.to_str().map(String::from));
    let sockets: HashSet<String> =
        sockets.filter_map(|link| Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.into())).collect();
    let listed = Command::new("ss").args(["-tineHO", "state", "established"]).output().unwrap();
    let mine =
        |line: &&str| line.split(' ').filter_map(|word| word.strip_prefix("ino:")).any(|it| sockets.contains(it));
    let bytes = |word: &str| {
        let count = word.strip_prefix("bytes_sent:").or(word.strip_prefix("bytes_received:"))?;
        count.parse::<u64>().ok()
    };
    text(&listed.stdout).lines().filter(mine).map(|line| line.split(' ').filter_map(bytes).sum()).collect()
}

#[test]
fn impossible_measurements_are_refused_with_the_reason() {
    for (arguments, reason) in [
        (&["perf", "--transport", "carrier-pigeon"][..], "`carrier-pigeon` is not a known transport"),
        (&["perf", "--mode", "bandwidth", "--sizes", "0"], "nothing to measure"),
        (&["perf", "--sizes", "8,many"], "is not a size"),
        (&["perf", "--json", "/nowhere/at/all"], "/nowhere/at/all"),
        (&["perf", "--csv", "/nowhere/at/all"], "/nowhere/at/all"),
        (&["perf", "--plot", "/nowhere/at/all.png"], "--plot /nowhere/at/all.png"),
        (&["perf", "--plot", "chart.jpg"], ".svg or .png"),
        (&["perf", "--csv", "/nowhere/file", "--json", "/nowhere/./file"], "--json and --csv name the same file"),
        (&["perf", "--hosts", "/nowhere/hosts"], "/nowhere/hosts"),
        (&["perf", "--hosts", "/nowhere/hosts", "--transport", "sm"], "sm does not work between hosts"),
        (&["perf", "--rsh", "ssh"], "--hosts"),
    ] {
        let output = towline(arguments);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(reason), "{arguments:?}: {said}");
        // The lines above the table.
        assert!(text(&output.stdout).lines().count() <= 2, "nothing was measured: {}", text(&output.stdout));
    }
}

/// The output that `host-tests/bench/run` reads.
#[test]
fn a_line_of_words_for_each_repetition() {
    let me = env!("CARGO_BIN_EXE_towline");
    let plain = ["run", "-n", "2", "--no-prefix", "--transport", "sm", "--", me, "perf-rank", "--quick", "--no-limit"];
    let plain = [&plain[..], &["--repeat", "1", "--measure", "latency:8"]].concat();
    for (more, numbers) in [(&[][..], 4), (&["--exchange"], 6)] {
        let output = towline(&[&plain[..], more].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        for line in text(&output.stdout).lines() {
            let rest = line.strip_prefix("sm latency 8 ").expect(line);
            let words: Vec<f64> = rest.split(' ').map(|word| word.parse().expect(line)).collect();
            // All values except the limit, which was not measured.
            assert!(words.len() == numbers && words[1] == 0.0, "{line}");
            assert!(words.iter().enumerate().all(|(at, word)| at == 1 || *word > 0.0), "{line}");
        }
    }
}

/// A rank that fails makes the command fail. Here the transport of both ranks does not work.
#[test]
fn the_exit_status_shows_that_a_rank_failed() {
    let arguments = ["perf", "--quick", "--transport", "sm", "--sizes", "8"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_towline"));
    let output = command.args(arguments).env("TOWLINE_SM_DIRECTORY", "/nowhere/at/all").output().unwrap();
    assert!(
        !output.status.success() && text(&output.stderr).contains("the job of the two ranks failed"),
        "{}",
        text(&output.stderr)
    );
}

/// The limits of streams are the same for both, so only the buffers differ.
#[test]
fn streams_with_one_buffer_are_measured_beside_those_with_many() {
    let folder = script::Folder::new("perf-buffers", "");
    let path = folder.path("csv");
    let arguments =
        ["perf", "--quick", "--mode", "bandwidth,bandwidth-one-buffer,rate-one-buffer", "--sizes", "100001"];
    let output = towline(&[&arguments[..], &["--transport", "sm,tcp", "--repeat", "1", "--csv", &path]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let csv = fs::read_to_string(&path).unwrap();
    let mut lines = csv.lines();
    let columns = lines.next().unwrap().split(',').count();
    let mut seen = Vec::new();
    for line in lines {
        let fields: Vec<_> = line.split(',').collect();
        assert_eq!(fields.len(), columns, "{line}");
        let number = |at: usize| fields[at].parse::<f64>().unwrap_or_else(|_| panic!("{line}"));
        // Value, limit, ratio, and the percentiles.
        assert!([3, 5, 6, 7, 8, 9, 10, 11].into_iter().all(|at| number(at) > 0.0), "{line}");
        seen.push(fields[..3].join(" "));
    }
    let rows = |transport: &str| {
        ["bandwidth 100001", "bandwidth-one-buffer 100001", "rate-one-buffer 8"].map(|row| format!("{transport} {row}"))
    };
    assert_eq!(seen, ["sm", "tcp"].map(rows).concat());
}

#[test]
fn two_hosts_are_measured_with_the_limits_of_sockets() {
    let folder = script::Folder::new("perf-hosts", "node0\nnode1 slots=4\n");
    let (path, hosts) = (folder.path("csv"), folder.hosts());
    let arguments = ["perf", "--quick", "--repeat", "1", "--sizes", "8", "--address", "127.0.0.1", "--csv", &path];
    let hosts: Vec<_> = hosts.iter().map(String::as_str).collect();
    for (transport, rows) in [(&[][..], 3), (&["--transport", "udp", "--mode", "latency,put"], 2)] {
        let output = towline(&[&arguments[..], &hosts, transport].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(text(&output.stdout).contains("two processes on two hosts"), "{}", text(&output.stdout));
        let csv = fs::read_to_string(&path).unwrap();
        let lines: Vec<Vec<_>> = csv.lines().skip(1).map(|line| line.split(',').collect()).collect();
        assert_eq!(lines.len(), rows, "{csv}");
        for line in lines {
            let number = |at: usize| line[at].parse::<f64>().unwrap();
            assert!(line[0] != "sm" && number(3) > 0.0 && number(5) > 0.0, "{line:?}");
        }
    }
    fs::write(folder.path("hosts"), "node0 slots=2\n").unwrap();
    let output = towline(&[&arguments[..], &hosts].concat());
    assert!(!output.status.success() && text(&output.stderr).contains("needs two hosts"), "{}", text(&output.stderr));
}
