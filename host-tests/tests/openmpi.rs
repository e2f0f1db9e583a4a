//! Promises that the components for Open MPI keep: `host-tests/mpi/contracts` runs their programs, once for all tests here. Without an
//! Open MPI and its headers, the tests are skipped, and say so. The thorough part `mpi` runs the script for Open MPI 4.1 and 5.0.

mod programs;

use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

/// What the script has said.
fn said() -> &'static str {
    static SAID: OnceLock<String> = OnceLock::new();
    SAID.get_or_init(|| {
        let built = programs::build(&[&["-p", "towline-c"]]);
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("mpi/contracts");
        let mut command = Command::new("bash");
        command.arg(script).env("TOWLINE_STATIC_LIBRARY", built.join("deps/libtowline_c.a"));
        // The folder that cargo uses, whether the variable names it or not.
        command.env("CARGO_TARGET_DIR", built.parent().unwrap());
        let output = command.output().unwrap_or_else(|why| panic!("{command:?}: {why}: install bash"));
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(!said.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        if said.starts_with("skipped: ") {
            // Not by a macro, whose text is shown for failed tests only.
            let _ = write!(std::io::stderr(), "the tests of the components for Open MPI: {said}");
        }
        said
    })
}

/// Requires that the checks whose names begin so were made, and are well.
fn check(name: &str) {
    let said = said();
    if said.starts_with("skipped: ") {
        return;
    }
    let lines: Vec<_> =
        said.lines().filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', ',']))).collect();
    assert!(!lines.is_empty() && lines.iter().all(|line| line.ends_with(": ok")), "{said}");
}

#[test]
fn b8_open_mpi_gets_frames_with_tag_data_and_an_endpoint_that_may_be_missing() {
    check("b8");
}

#[test]
fn b9_open_mpi_gets_whole_frames_in_one_base_segment() {
    check("b9");
}

#[test]
fn b26_open_mpi_ships_the_bytes_of_a_handle_and_none_if_there_are_none() {
    check("b26");
}

#[test]
fn b27_open_mpi_registers_memory_for_null_for_the_wildcard_and_for_an_endpoint() {
    check("b27");
}

#[test]
fn b30_the_hook_for_checkpoints_says_not_supported_and_there_is_no_pool() {
    check("b30");
}

#[test]
fn b31_the_padding_of_a_module_is_last_and_never_written() {
    check("b31");
}

#[test]
fn b47_open_mpi_needs_no_answer_of_the_peer_for_a_frame_to_leave() {
    check("b47");
}

#[test]
fn b47_a_rank_may_leave_mpi_after_it_has_received_a_long_message() {
    check("last receive");
}

#[test]
fn b54_the_component_loads_and_refuses_other_interfaces() {
    check("b54");
}

#[test]
fn m11_the_memory_of_a_request_is_not_touched_after_its_completion() {
    check("m11");
}

#[test]
fn messages_and_windows_of_mpi_have_the_right_bytes() {
    check("messages");
    check("windows");
}

#[test]
fn x5_open_mpi_gets_copies_of_cards_and_a_process_without_one_is_unreachable() {
    check("x5");
}
