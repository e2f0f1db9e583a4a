//! Ranks over udp that send and then do something else, as processes of their own: what they sent arrives all the same.

#[path = "common/processes.rs"]
#[allow(dead_code)]
mod processes;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use processes::{Job, say};
use towline::World;

/// What ranks do that this file starts. Without a role, as in a normal test run, nothing.
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
    say("over");
}

/// The first rank sends, and hears by a way of its own that all has arrived, with no call of the world in between.
fn elsewhere(world: &World) {
    if world.rank() == 0 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        world.send(1, 1, &listener.local_addr().unwrap().port()).unwrap();
        let mut socket = listener.accept().unwrap().0;
        for round in 0..200u32 {
            // Few leave at once, more wait for each other.
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

fn ends_well(role: &str, variables: &[(&str, &str)]) {
    let variables: Vec<_> = [("TOWLINE_TRANSPORTS", "udp")].iter().chain(variables).copied().collect();
    let mut job = Job::start(2, role, &variables);
    for rank in &mut job.ranks {
        rank.hear("over");
    }
    job.ranks.into_iter().for_each(processes::Rank::ends_well);
}

#[test]
fn p15_what_a_rank_sends_leaves_before_it_turns_to_something_else() {
    ends_well("elsewhere", &[]);
    // Nor does that take a thread.
    ends_well("elsewhere", &[("TOWLINE_PROGRESS_THREAD", "never")]);
}
