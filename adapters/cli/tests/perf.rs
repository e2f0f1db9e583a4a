//! `towline perf` with its real ranks. What the figures are is the machine's affair.

use std::process::{Command, Output};

fn towline(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_towline")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The value behind a key of a line of JSON without nesting.
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
        assert_eq!(line.matches("\":").count(), 7, "{line}");
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
    assert!(table.contains("100 KiB") && table.contains("repetitions count"), "{table}");
}

#[test]
fn what_cannot_be_measured_is_refused_with_the_reason() {
    for (arguments, reason) in [
        (&["perf", "--transport", "carrier-pigeon"][..], "no transport `carrier-pigeon`"),
        (&["perf", "--mode", "bandwidth", "--sizes", "0"], "nothing to measure"),
        (&["perf", "--sizes", "8,many"], "no size"),
        (&["perf", "--json", "/nowhere/at/all"], "/nowhere/at/all"),
    ] {
        let output = towline(arguments);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(reason), "{arguments:?}: {said}");
    }
}

/// A rank that fails makes the whole fail: here, the transport that both were told to use does not work.
#[test]
fn the_exit_status_is_that_of_the_ranks() {
    let arguments = ["perf", "--quick", "--transport", "sm", "--sizes", "8"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_towline"));
    let output = command.args(arguments).env("TOWLINE_SM_DIRECTORY", "/nowhere/at/all").output().unwrap();
    assert!(!output.status.success() && text(&output.stderr).contains("did not end well"), "{}", text(&output.stderr));
}
