//! Entry points for the fuzz target `bootstrap`: input to ranks, servers, agents and launchers, and files and variables
//! that users write. They exist only with the feature `fuzzing`, and are not a stable interface.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use towline_core::modex::Modex;

mod input;
mod launch;
mod server;

use self::input::{COMPONENT, Input, SIZE, key};
use crate::environment::VARIABLES;
use crate::protocol::channel::{Channel, Side};
use crate::protocol::handshake::{ANSWER, OPENING};
use crate::protocol::stream::Stream;
use crate::rank::connect::{Connection, Joined, verify_answer};
use crate::{Address, Environment, Job};

/// Runs one input. Its first byte chooses the entry point.
///
/// # Panics
/// If the code under test is at fault.
pub fn run(data: &[u8]) {
    let Some((what, rest)) = data.split_first() else { return };
    match what % 5 {
        0 => server::run(rest),
        1 => rank(rest),
        2 => launch::messages(rest),
        3 => launch::hosts(rest),
        _ => environment(rest),
    }
}

/// A rank gets frames from a server that holds the key, and bytes that are not sealed.
fn rank(data: &[u8]) {
    if let (Some(opening), Some(answer)) = (data.first_chunk::<OPENING>(), data.last_chunk::<ANSWER>()) {
        assert!(verify_answer(&key(), opening, answer).is_err(), "a server without the key was believed");
    }
    let mut input = Input(data);
    let Ok((mine, mut theirs)) = UnixStream::pair() else { return };
    let Ok(stream) = Stream::unix(mine) else { return };
    theirs.set_nonblocking(true).expect("a socket of this process");
    let mut server = Channel::new(key(), Side::Server);
    let connection = Connection { stream, channel: Channel::new(key(), Side::Rank), buffer: vec![0; 256].into() };
    let mut job = Job::new(Environment { rank: 1, size: SIZE, ..Environment::singleton() });
    let fence = if input.byte() & 1 == 1 { u32::MAX } else { 0 };
    job.set_connection(Joined { connection, incarnation: 1, fence });
    let watch = job.recv_nb(&COMPONENT, 0);
    assert!(watch.is_ok());
    let mut honest = true;
    while !input.0.is_empty() {
        match input.byte() % 8 {
            0 => {
                honest = false;
                let _ = theirs.write(input.bytes());
            }
            1 => drop(job.exchange(Instant::now())),
            2 => drop(job.fence(Instant::now())),
            3 => drop(job.publish(&COMPONENT, input.bytes())),
            _ => {
                let (kind, payload) = input.frame();
                server.send(kind, &payload);
                let written = theirs.write(server.output()).unwrap_or(0);
                server.wrote(written);
            }
        }
        let polled = job.poll();
        let changes = std::iter::from_fn(|| job.next_change()).take(10).count();
        assert!(changes <= 1, "one watch, and {changes} changes at once");
        for peer in 0..=SIZE {
            if let Ok(card) = job.card(&COMPONENT, peer) {
                assert!(card.len() <= 256);
            }
        }
        // The rank's own frames stay well-formed to the end.
        let mut said = [0; 1 << 16];
        while let Ok(count) = theirs.read(&mut said)
            && count != 0
        {
            server.feed(&said[..count]);
        }
        while honest && polled.is_ok() && server.next().expect("a rank seals its frames").is_some() {}
    }
}

/// Reads an environment. Each line of the input is a variable's number and its value.
fn environment(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let line = |name: &str| {
        let number = VARIABLES.iter().position(|known| *known == name)?;
        let number = char::from_digit(number as u32, 10)?;
        text.lines().find_map(|line| line.strip_prefix(number)).map(str::to_string)
    };
    for line in text.lines() {
        if let Ok(address) = line.parse::<Address>() {
            assert_eq!(address.to_string().parse(), Ok(address));
        }
    }
    let Ok(read) = Environment::from_lookup(line) else { return };
    assert!(read.rank < read.size);
    let variables = read.variables();
    let again = Environment::from_lookup(|name| variables.iter().find(|it| it.0 == name).map(|it| it.1.clone()));
    let mut again = again.expect("what is written can be read");
    if read.root.is_empty() {
        // In a job of size 1 without a server these are random, since no other process needs them.
        (again.job, again.key) = (read.job, read.key.clone());
    }
    assert_eq!(again, read);
}

#[cfg(test)]
mod tests {
    /// This only keeps the file working. The fuzz target does the search.
    #[test]
    fn random_inputs_do_no_harm() {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        for length in 0..400 {
            let data: Vec<u8> = (0..length).map(|_| next()).collect();
            super::run(&data);
        }
    }
}
