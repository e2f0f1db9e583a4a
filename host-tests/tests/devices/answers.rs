//! The recorded trace has the same results everywhere. `TOWLINE_RECORD=1` writes the results of the host's core.

use std::fmt::Write;
use std::path::Path;

use replay::{TRACE, loopback};

/// Requires these results to be the recorded ones, and names the first line that differs.
pub fn check(place: &str, results: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../firmware/replay/results.txt");
    let recorded = std::fs::read_to_string(&path).expect("the results are recorded");
    let lines: Vec<&str> = std::str::from_utf8(TRACE).expect("text").lines().collect();
    let mut both = results.lines().map(Some).chain([None]).zip(recorded.lines().map(Some).chain([None]));
    if let Some((is, was)) = both.find(|(is, was)| is != was) {
        let number = is.or(was).and_then(|line| line.split(' ').next()?.parse::<usize>().ok());
        let step = number.and_then(|number| lines.get(number - 1)).unwrap_or(&"the end");
        panic!("{place}, {step}: the result is {is:?}, and {was:?} is recorded");
    }
}

fn micros() -> u64 {
    0
}

#[test]
fn the_core_of_this_host_gives_the_recorded_answers() {
    let mut results = String::new();
    let (mut tables, mut memory) = (vec![0; loopback::BYTES], vec![0; replay::replay::MEMORY]);
    let replayed = loopback::replay(TRACE, &mut tables, &mut memory, micros, |line| {
        results.write_fmt(line).expect("a string takes all");
    });
    if std::env::var_os("TOWLINE_RECORD").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../firmware/replay/results.txt");
        std::fs::write(path, &results).expect("the file can be written");
    }
    replayed.unwrap_or_else(|why| panic!("{why}, after {:?}", results.lines().last()));
    check("the core of this host", &results);
}
