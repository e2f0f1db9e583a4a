//! Ranks whose connections are encrypted, as processes of their own; and ranks that differ in that.

#[path = "common/pattern.rs"]
mod pattern;
#[path = "common/processes.rs"]
mod processes;

use pattern::pattern;
use processes::{Job, say};
use towline::{Builder, Encrypt, Error, World};

/// Each way that goes by the network, as a transport and its links.
const WAYS: [(&str, &str); 3] = [("tcp", "1"), ("tcp", "3"), ("udp", "1")];

/// What ranks do that this file starts. Without a role, as in a normal test run, nothing.
#[test]
#[ignore = "started by the other tests as their ranks"]
fn as_rank() {
    let Ok(role) = std::env::var("ROLE") else { return };
    // The program's word counts where the environment has none.
    let differs = role == "differs" && std::env::var("TOWLINE_RANK").as_deref() == Ok("1");
    let builder =
        Builder::new().configure(|config| config.encrypt = if differs { Encrypt::Off } else { Encrypt::Always });
    let world = builder.build().unwrap();
    match role.as_str() {
        "talk" => {
            talk(&world);
            world.finish().unwrap();
        }
        "differs" => {
            let other = 1 - world.rank();
            let failed = Error::PeerFailed { rank: other };
            assert_eq!(world.send(other, 1, &[7u8; 100_000][..]).unwrap_err(), failed);
            assert_eq!(world.recv(other, 1, &mut [0u8; 4]).unwrap_err(), failed);
            assert!(world.finish().is_err());
        }
        _ => panic!("no role {role}"),
    }
    say("over");
}

/// All with all, at once, in many lengths.
fn talk(world: &World) {
    let own = world.rank();
    for (round, len) in (0..).zip([0, 8, 500, 9000, 70_000, 1_000_000, 3_000_003]) {
        let others = || (0..world.size()).filter(|other| *other != own);
        let receives: Vec<_> = others().map(|from| (from, world.irecv(from, round, vec![0; len]).unwrap())).collect();
        let sends: Vec<_> = others().map(|to| world.isend(to, round, pattern(len, own + round)).unwrap()).collect();
        for (from, receive) in receives {
            assert!(receive.wait().unwrap().0 == pattern(len, from + round), "{len} bytes from {from}");
        }
        sends.into_iter().for_each(|send| drop(send.wait().unwrap()));
    }
    world.barrier().unwrap();
}

#[test]
fn ranks_talk_over_encrypted_connections() {
    for (way, links) in WAYS {
        let job = Job::start(3, "talk", &[("TOWLINE_TRANSPORTS", way), ("TOWLINE_LINKS", links)]);
        for mut rank in job.ranks {
            rank.hear("over");
            rank.ends_well();
        }
    }
}

/// They could read each other, but one would say in the clear what the other wants to be secret.
#[test]
fn ranks_that_differ_in_it_end_with_an_error_and_hang_nowhere() {
    for way in ["tcp", "udp"] {
        let variables = [
            ("TOWLINE_TRANSPORTS", way),
            ("TOWLINE_FINISH_TIMEOUT_MS", "500"),
            ("TOWLINE_TCP_CONNECT_TIMEOUT_MS", "2000"),
            ("TOWLINE_UDP_CONNECT_TIMEOUT_MS", "2000"),
        ];
        let job = Job::start(2, "differs", &variables);
        for mut rank in job.ranks {
            rank.hear("over");
            rank.ends_well();
        }
    }
}
