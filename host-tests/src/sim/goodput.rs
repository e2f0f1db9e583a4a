//! Goodput over a lossy rail: a long transfer over a link in virtual time.

use std::collections::BTreeSet;
use std::fmt::Write;

use towline_core::pml::Config;

use super::history::{Message, Mode, Receive};
use super::job::LinkParams;
use super::job::{JobError, Setting, run};
use super::network::faults::{Faults, RailParams};
use super::plan::{Cancel, Comm, Plan, Step, Style};
use crate::random::Random;

/// Frames lost, per mille.
pub const LOSSES: [u32; 5] = [0, 10, 50, 100, 300];
/// Megabytes per second of the rail.
pub const BANDWIDTH: u32 = 1250;
/// One-way latency in nanoseconds.
pub const LATENCY: u32 = 25_000;
/// Bytes of a datagram.
pub const FRAME: u32 = 1472;

const MESSAGES: u32 = 64;
const MESSAGE: u64 = 1 << 18;
/// Which frames are lost is random. This many transfers are made, and the median counts.
const TIMES: u64 = 9;

/// The result of a transfer.
#[derive(Clone, Copy, Debug)]
pub struct Goodput {
    /// Frames lost, per mille.
    pub loss: u32,
    /// Megabytes of user data per second.
    pub megabytes: f64,
    /// Frames that were sent again, per mille of those sent once.
    pub resent: f64,
    /// Number of retransmission time-outs.
    pub timeouts: u64,
}

/// Transfers 16 MiB in messages of 256 KiB, up to eight at a time, over one rail with this loss. The other direction
/// carries only acknowledgements, with the same loss. Returns the transfer of median speed.
///
/// # Errors
/// The error of the job.
pub fn measure(loss: u32) -> Result<Goodput, JobError> {
    let times = if loss == 0 { 1 } else { TIMES };
    let mut all = (0..times).map(|seed| transfer(loss, seed)).collect::<Result<Vec<_>, _>>()?;
    all.sort_by(|one, other| one.megabytes.total_cmp(&other.megabytes));
    Ok(all[all.len() / 2])
}

fn transfer(loss: u32, seed: u64) -> Result<Goodput, JobError> {
    let message = Message { from: 0, to: 1, comm: 0, tag: 1, len: MESSAGE, mode: Mode::Standard };
    let receive = Receive { at: 1, comm: 0, source: Some(0), tag: Some(1), buffer: MESSAGE };
    let plan = Plan {
        messages: vec![message; MESSAGES as usize],
        receives: vec![receive; MESSAGES as usize],
        comms: vec![Comm { context: 1, table: None, style: Style::NamedSources }],
        permanent: 1,
        programs: vec![
            (0..MESSAGES).map(|index| Step::Send(index, vec![])).collect(),
            (0..MESSAGES).map(|index| Step::Recv(index, Cancel::Never)).collect(),
        ],
    };
    let params = RailParams {
        latency: LATENCY,
        bandwidth: BANDWIDTH,
        eager_limit: FRAME,
        rendezvous_eager_limit: 0,
        min_fragment: FRAME,
        max_send_size: FRAME,
        slots: 4096,
        frames_kept: 16,
        datagrams: true,
        ..RailParams::default()
    };
    let config = Config { peers: 2, requests: 8, ..Config::SMALLEST };
    let faults = Faults { drop: loss, ..Faults::default() };
    let report = run(Setting {
        config,
        rail_params: vec![params],
        links: Some(LinkParams::DEFAULTS),
        faults,
        deaths: vec![],
        disconnected: vec![],
        stalled_pairs: BTreeSet::new(),
        toggles: vec![],
        stall_timeout: None,
        faults_end_at: None,
        cancels_sends: false,
        plan,
        windows: None,
        pace: 400,
        random: Random::new(seed),
    })?;
    let count = |name| report.transitions.iter().find(|(other, _)| *other == name).map_or(0, |(_, count)| *count);
    let (resent, fragments) = (count("link_resent"), count("fragments_sent"));
    Ok(Goodput {
        loss,
        megabytes: (u64::from(MESSAGES) * MESSAGE) as f64 * 1000.0 / report.took as f64,
        resent: resent as f64 * 1000.0 / fragments.max(1) as f64,
        timeouts: count("link_timeouts"),
    })
}

/// The results for all losses, as a table in Markdown.
pub fn table() -> String {
    let mut text = format!(
        "16 MiB in messages of 256 KiB, one rail of {BANDWIDTH} MB/s, {} us one way, datagrams of {FRAME} bytes, virtual time; the median of {TIMES} transfers\n\n\
         | frames lost | goodput, MB/s | of the rail | retransmitted | timeouts |\n|---|---|---|---|---|\n",
        LATENCY / 1000
    );
    for loss in LOSSES {
        let line = match measure(loss) {
            Err(trouble) => format!("| {} % | {trouble} |", loss / 10),
            Ok(Goodput { megabytes, resent, timeouts, .. }) => format!(
                "| {} % | {megabytes:.3} | {:.1} % | {:.1} % | {timeouts} |",
                loss / 10,
                megabytes * 100.0 / f64::from(BANDWIDTH),
                resent / 10.0
            ),
        };
        let _ = writeln!(text, "{line}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the goodput of a link with the bandwidth that gets through the rail.
    #[test]
    fn p15_b34_goodput_stays_near_the_rate_of_delivered_frames() {
        for (loss, least) in [(0, 0.9), (10, 0.9), (50, 0.85), (100, 0.8), (300, 0.4)] {
            let goodput = measure(loss).expect("it ends");
            let through = f64::from(BANDWIDTH) * f64::from(1000 - loss) / 1000.0;
            assert!(goodput.megabytes >= through * least, "{goodput:?}, of {through} MB/s");
            assert!(goodput.resent <= f64::from(loss) * 1.6 + 1.0, "more than was lost: {goodput:?}");
        }
    }
}
