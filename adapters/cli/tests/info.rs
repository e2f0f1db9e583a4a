//! `towline info` on this machine.

use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Output};

use serde_json::Value;

fn info(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_towline"));
    command.arg("info").args(arguments).envs(variables.iter().copied()).output().unwrap()
}

fn json(variables: &[(&str, &str)]) -> Value {
    let output = info(&["--json"], variables);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn named<'v>(list: &'v Value, key: &str, name: &str) -> &'v Value {
    list.as_array().unwrap().iter().find(|it| it[key] == name).unwrap_or_else(|| panic!("no {name} in {list}"))
}

#[test]
fn settings_have_unit_and_origin() {
    let info = json(&[("TOWLINE_UNIT_BYTES", "4096"), ("TOWLINE_TCP_MAX_SEND_BYTES", "9000000")]);
    let unit = named(&info["settings"], "name", "unit_bytes");
    assert_eq!((&unit["value"], &unit["unit"], &unit["origin"]), (&"4096".into(), &"B".into(), &"environment".into()));
    assert_eq!(named(&info["settings"], "name", "links")["origin"], "default");
    assert_eq!(info["wire_version"], 1);
    assert!(named(&info["machine"], "name", "page")["value"].as_u64().unwrap() >= 4096);
    let bytes = |of| named(&info["bytes"], "of", of)["bytes"].as_u64().unwrap();
    assert!(bytes("peer") > 0 && bytes("staging of a tcp connection, at most") > 9_000_000);
}

#[test]
fn choices_have_reasons() {
    let info = json(&[]);
    let choice = |whom| named(&info["chosen"], "for", whom)["choice"].as_str().unwrap().to_string();
    assert!(choice("itself").contains("loopback taken"), "{}", choice("itself"));
    assert!(choice("same host").contains("sm taken"), "{}", choice("same host"));
    assert!(
        choice("other host").contains("sm not taken (unreachable: the peer is on another host)"),
        "{}",
        choice("other host")
    );
    assert_eq!(named(&info["transports"], "name", "sm")["works"], true);
}

#[test]
fn the_bootstrap_and_the_pmix_library_have_reasons() {
    let start = |variables: &[(&str, &str)]| {
        let output = info(&["--json", "start"], variables);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let info: Value = serde_json::from_slice(&output.stdout).unwrap();
        let value = |name| named(&info["start"], "name", name)["value"].as_str().unwrap().to_string();
        (value("bootstrap"), value("PMIx library"))
    };
    let no_launcher = "a job of its own: no launcher has started this process";
    assert!(start(&[]).0.starts_with(no_launcher), "{}", start(&[]).0);
    let pmix = [("PMIX_NAMESPACE", "job"), ("PMIX_RANK", "0"), ("TOWLINE_PMIX_LIBRARY", "/nowhere/libpmix.so")];
    let (bootstrap, library) = start(&pmix);
    assert!(bootstrap.starts_with("pmix: PMIX_NAMESPACE and PMIX_RANK are set"), "{bootstrap}");
    assert!(library.starts_with("none: ") && library.contains("/nowhere/libpmix.so"), "{library}");
    let own = [&pmix[..], &[("TOWLINE_BOOTSTRAP", "own")]].concat();
    assert!(start(&own).0.starts_with("a job of its own: TOWLINE_BOOTSTRAP is own"), "{}", start(&own).0);
}

#[test]
fn an_unavailable_transport_has_a_reason() {
    let broken = [("TOWLINE_SM_DIRECTORY", "/nowhere/at/all")];
    let info = json(&broken);
    let sm = named(&info["transports"], "name", "sm");
    assert!(sm["works"] == false && sm["why"].as_str().unwrap().contains("/nowhere/at/all"), "{sm}");
    // The directory was asked for, so a job does not go on without it.
    let choice = named(&info["chosen"], "for", "same host")["choice"].as_str().unwrap().to_string();
    assert!(choice.starts_with("none: ") && choice.contains("correct or unset TOWLINE_SM_DIRECTORY"), "{choice}");
    // Verbs needs a device, a driver, a library, and the build feature.
    let verbs = named(&info["transports"], "name", "verbs");
    let reasons = ["--features verbs", "no RDMA device", "libibverbs", "no port can be used"];
    let told = verbs["why"].as_str().is_some_and(|why| reasons.iter().any(|reason| why.contains(reason)));
    assert!(verbs["works"] == true || told, "{verbs}");
    let text = String::from_utf8(self::info(&[], &broken).stdout).unwrap();
    assert!(text.contains("sm         no: ") && text.contains("TOWLINE_SM_DIRECTORY"), "{text}");
}

#[test]
fn an_invalid_variable_is_named() {
    let output = info(&[], &[("TOWLINE_LINKS", "many")]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("TOWLINE_LINKS"), "{said}");
}

#[test]
fn an_unknown_variable_is_named_once_with_the_nearest_setting() {
    let output = info(&["--json"], &[("TOWLINE_SPINN_US", "1")]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.contains("did you mean TOWLINE_SPIN_US?"), "{said}");
    assert_eq!(said.matches("TOWLINE_SPINN_US").count(), 1, "{said}");
    let info: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(info["unknown_variables"][0]["name"], "TOWLINE_SPINN_US");
    assert_eq!(info["unknown_variables"][0]["nearest"], "TOWLINE_SPIN_US");
}

#[test]
fn a_reader_that_closes_early_causes_no_error() {
    // The reader has closed before the first byte is written. Copies of its socket in other new processes do not matter.
    let (reader, writer) = UnixStream::pair().unwrap();
    reader.shutdown(Shutdown::Both).unwrap();
    let mut info = Command::new(env!("CARGO_BIN_EXE_towline"));
    let output = info.arg("info").stdout(OwnedFd::from(writer)).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(128 + 13));
}

#[test]
fn names_and_a_text_select_rows() {
    let shown = |arguments: &[&str]| {
        let output = info(arguments, &[("TOWLINE_SM_LIVENESS_MS", "77")]);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let one = shown(&["TOWLINE_SM_LIVENESS_MS"]);
    assert_eq!(one.lines().count(), 2, "{one}");
    assert!(one.contains("77") && one.contains("environment") && one.contains("[default: 250]"), "{one}");
    assert_eq!(shown(&["sm.liveness_ms"]), one);
    let sm = shown(&["sm"]);
    assert!(
        sm.contains("Transports\n  sm ") && sm.contains("TOWLINE_SM_DIRECTORY") && !sm.contains("TOWLINE_TCP"),
        "{sm}"
    );
    let found = shown(&["--filter", "receive buffer"]);
    assert!(found.contains("a socket's receive buffer") && !found.contains("Transports"), "{found}");
    let json: Value = serde_json::from_str(&shown(&["--json", "settings", "--filter", "LINKS"])).unwrap();
    assert_eq!(named(&json["settings"], "name", "links")["variable"], "TOWLINE_LINKS");
    assert_eq!(json["machine"], Value::Array(vec![]));
    for (arguments, words) in [
        (["spinn"], ["`spinn`", "--filter spinn"]),
        (["TOWLINE_FOO"], ["`TOWLINE_FOO` is not a known setting", "section; sections are"]),
        (["--filter=no such thing"], ["nothing contains", "no such thing"]),
    ] {
        let output = info(&arguments, &[]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && words.iter().all(|word| said.contains(word)), "{said}");
    }
}
