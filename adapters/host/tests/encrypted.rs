//! Ranks with encrypted connections, as separate processes; and ranks whose settings differ.

#[path = "common/pattern.rs"]
mod pattern;
#[path = "common/processes.rs"]
mod processes;

use pattern::pattern;
use processes::{Job, report};
use towline::{Builder, Encrypt, Error, World};

/// The transports over a network: transport and number of links.
const TRANSPORTS: [(&str, &str); 3] = [("tcp", "1"), ("tcp", "3"), ("udp", "1")];

/// The program of the ranks that the tests of this file start. Without a role, as in a normal test run, it does nothing.
#[test]
#[ignore = "started by the other tests as their ranks"]
fn as_rank() {
    let Ok(role) = std::env::var("ROLE") else { return };
    // The setting of the program counts if the environment has none.
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
    report("over");
}

/// All ranks exchange messages of many lengths with all, at the same time.
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
fn ranks_exchange_messages_over_encrypted_connections() {
    for (transport, links) in TRANSPORTS {
        let job = Job::start(3, "talk", &[("TOWLINE_TRANSPORTS", transport), ("TOWLINE_LINKS", links)]);
        for mut rank in job.ranks {
            rank.wait_for("over");
            rank.assert_success();
        }
    }
}

/// The ranks could understand each other, but one would send data unencrypted that the other wants to be encrypted.
#[test]
fn ranks_with_different_encryption_settings_fail_and_do_not_hang() {
    for transport in ["tcp", "udp"] {
        let variables = [
            ("TOWLINE_TRANSPORTS", transport),
            ("TOWLINE_FINISH_TIMEOUT_MS", "500"),
            ("TOWLINE_TCP_CONNECT_TIMEOUT_MS", "2000"),
            ("TOWLINE_UDP_CONNECT_TIMEOUT_MS", "2000"),
        ];
        let job = Job::start(2, "differs", &variables);
        for mut rank in job.ranks {
            rank.wait_for("over");
            rank.assert_success();
        }
    }
}
