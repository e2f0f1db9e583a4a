//! Jobs by seed: a random shape, random limits, a random set of faults.

use towline_core::pml::Config;

use super::faults::{Faults, Make};
use super::job::{Report, Setting, Trouble, run};
use super::plan::{Plan, Shape};
use crate::dice::Dice;

/// Messages of a seed, at least.
pub const MESSAGES: usize = 200;

/// The job that belongs to a seed. Every fourth has at least four nodes.
pub fn setting(seed: u64) -> Setting {
    let mut dice = Dice::new(seed);
    let nodes = if seed.is_multiple_of(4) { dice.between(4, 6) } else { dice.between(1, 4) } as u32;
    let makes: Vec<Make> = makes(&mut dice);
    let faults = if dice.chance(150) { Faults::default() } else { Faults::reliable(&mut dice) };
    let window = dice.pick(&[1, 2, 3, 4, 8, 16, 64, 256]).max(u32::from(nodes == 1) * 2);
    // Fragments are small at times: not too many of them.
    let fragment = makes.iter().map(|make| u64::from(make.max_send_size)).min().unwrap_or(1);
    let longest = dice.pick(&[0, 64, 1000, 10_000, 100_000, 300_000]).min(fragment * 300);
    let shape = Shape { nodes, messages: MESSAGES, window, longest, comms: dice.between(1, 3) as u32 };
    let unexpected = share(&mut dice, nodes);
    let units = if dice.chance(500) { unexpected } else { share(&mut dice, nodes) };
    let config = Config {
        peers: nodes,
        requests: window,
        unexpected,
        units,
        unit_bytes: dice.pick(&[8, 64, 256, 1024, 8192]),
        probes: dice.pick(&[1, 1, 2, 8]),
        seed: 0,
        first_sequence: dice.pick(&[0, (1 << 16) - 9, (1 << 32) - 9, u64::MAX - 40, 1 << 33]),
    };
    let plan = Plan::new(shape, &mut dice);
    let pace = dice.pick(&[50, 500, 5000, 20_000]);
    Setting { config, makes, faults, plan, pace, dice }
}

/// Envelopes or units for all peers together: at times fewer than one for each, at times one, at times plenty.
fn share(dice: &mut Dice, nodes: u32) -> u32 {
    match dice.below(4) {
        0 => 1,
        1 => nodes,
        _ => nodes * dice.pick(&[2, 3, 8, 64]),
    }
}

/// One to four rails, equal or not.
fn makes(dice: &mut Dice) -> Vec<Make> {
    let alike = dice.chance(300);
    let first = make(dice);
    (0..dice.between(1, 4)).map(|_| if alike { first } else { make(dice) }).collect()
}

fn make(dice: &mut Dice) -> Make {
    let eager_limit = dice.pick(&[64, 100, 1024, 4096, 16_384]);
    let max_send_size = dice.pick(&[64, 100, 1024, 8192, 65_536]);
    Make {
        latency: dice.pick(&[100, 100, 1000, 30_000]),
        bandwidth: dice.pick(&[100, 1000, 10_000]),
        eager_limit,
        rendezvous_eager_limit: dice.pick(&[0, 10, eager_limit]),
        min_fragment: dice.pick(&[1, max_send_size / 2, max_send_size]),
        max_send_size,
        slots: dice.pick(&[1, 2, 4, 16, 64]),
        frames_kept: dice.pick(&[1, 1, 2, 8]),
        datagrams: false,
    }
}

/// Runs the job of a seed.
///
/// # Errors
/// What went wrong, as text, with the command that brings it back.
pub fn seed(seed: u64) -> Result<Report, String> {
    let setting = setting(seed);
    run(setting.clone()).map_err(|trouble| failure(seed, &setting, &trouble))
}

fn failure(seed: u64, setting: &Setting, trouble: &Trouble) -> String {
    let Setting { config, makes, faults, .. } = setting;
    format!(
        "seed {seed}: {trouble}\n{} nodes, {config:?}\n{makes:?}\n{faults:?}\n\
         again: TOWLINE_SEED={seed} cargo test -p towline-host-tests --test sim -- --nocapture",
        setting.plan.programs.len()
    )
}
