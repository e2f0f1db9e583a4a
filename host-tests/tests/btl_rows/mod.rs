//! Promises that the BTL face keeps for C: the functions of `adapters/c/tests/btl_rows.c`. What is needed from Open MPI is tested by
//! `host-tests/tests/openmpi.rs`.

use std::process::{Command, Stdio};

/// Checks a promise between two processes, over each of these transports.
fn check(promise: &str, transports: &[&str]) {
    let program = crate::compile("cc", "c11", "tests/btl_rows.c", &[]);
    for transport in transports {
        let mut command = Command::new(&program);
        command.args([transport, promise]).args(cfg!(debug_assertions).then_some("poison")).stdin(Stdio::null());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{transport}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.stdout, b"done\n", "{transport}");
    }
}

const ALL: &[&str] = &["sm", "tcp", "udp"];

#[test]
fn b8_a_c_function_gets_tag_data_and_an_endpoint_that_may_be_missing() {
    check("b8", ALL);
}

#[test]
fn b9_bytes_that_a_c_program_keeps_too_long_are_poison() {
    check("b9", ALL);
}

#[test]
fn b26_a_key_in_c_has_as_many_bytes_as_the_module_says() {
    check("b26", ALL);
}

#[test]
fn b27_a_c_program_registers_memory_for_one_endpoint_or_for_any() {
    check("b27", ALL);
}

/// Not over udp, which sends its datagrams in progress.
#[test]
fn b47_frames_without_an_order_leave_without_an_answer_of_the_peer() {
    check("b47", &["sm", "tcp"]);
}

#[test]
fn x5_cards_in_c_are_copies_and_a_short_buffer_is_an_error_of_its_own() {
    check("x5", ALL);
}
