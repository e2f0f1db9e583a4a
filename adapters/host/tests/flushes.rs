//! Ranks over udp, as separate processes, that send a message and then do something else: the message arrives nevertheless.

#[path = "common/processes.rs"]
#[allow(dead_code)]
mod processes;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use processes::{Job, report};
use towline::World;

/// The program of the ranks that the tests of this file start. Without a role, as in a normal test run, it does nothing.
#[test]
#[ignore = "started by the other tests as their ranks"]
fn as_rank() {
    let Ok(role) = std::env::var("ROLE") else { return };
    let world = towline::init().unwrap();
    match role.as_str() {
        "elsewhere" => elsewhere(&world),
        _ => panic!("no role {role}"),
    }
    world.finish().unwrap();
    report("over");
}

/// In each round rank 0 sends messages, and then waits without a call of the library. A socket of the test tells it that all have
/// arrived.
fn elsewhere(world: &World) {
    if world.rank() == 0 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        world.send(1, 1, &listener.local_addr().unwrap().port()).unwrap();
        let mut socket = listener.accept().unwrap().0;
        for round in 0..200u32 {
            // A few messages are sent at once; more are sent together.
            for word in 0..round % 10 {
                world.send(1, 2, &word).unwrap();
            }
            socket.read_exact(&mut [0]).unwrap();
        }
        return;
    }
    let mut port = [0u16];
    world.recv(0, 1, &mut port).unwrap();
    let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port[0])).unwrap();
    for round in 0..200u32 {
        for word in 0..round % 10 {
            let mut told = [0u32];
            world.recv(0, 2, &mut told).unwrap();
            assert_eq!(told, [word]);
        }
        socket.write_all(&[1]).unwrap();
    }
}

fn assert_success(role: &str, variables: &[(&str, &str)]) {
    let variables: Vec<_> = [("TOWLINE_TRANSPORTS", "udp")].iter().chain(variables).copied().collect();
    let mut job = Job::start(2, role, &variables);
    for rank in &mut job.ranks {
        rank.wait_for("over");
    }
    job.ranks.into_iter().for_each(processes::Rank::assert_success);
}

#[test]
fn p15_a_message_is_sent_before_its_rank_does_something_else() {
    assert_success("elsewhere", &[]);
    // This does not need a progress thread.
    assert_success("elsewhere", &[("TOWLINE_PROGRESS_THREAD", "never")]);
}
