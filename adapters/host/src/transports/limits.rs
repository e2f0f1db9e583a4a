//! The engine's limits, and the memory for unexpected messages.

use towline_bootstrap::Job;
use towline_core::pml;
use towline_core::pml::rdma;
use towline_core::rail::Rail as _;
use towline_core::rma;
use towline_core::wire;

use crate::errors::setup::SetupError;
use crate::settings::config::Config;
use crate::transports::open::OpenedRails;
use crate::transports::rails::AnyRail;

/// The most bytes of all payload units of a context for which units are longer than [`SHORT_UNIT_BYTES`]. The kernel provides
/// memory only for units that were used.
const UNITS_BYTES: u32 = 64 << 20;
/// A payload unit has at least this many bytes, unless the configuration or the transports allow fewer.
const SHORT_UNIT_BYTES: u32 = 8 << 10;

/// The longest message, in bytes, that any rail sends in one frame. Where shared memory reaches all ranks, other transports carry
/// no messages.
pub(crate) fn longest_message_at_once(contexts: &[OpenedRails], job: &Job, loopback_frame: u32) -> u32 {
    let is_sm = |rail: &&AnyRail| matches!(rail, AnyRail::Sm(_));
    let rails = || contexts.iter().flat_map(|opened| &opened.rails);
    let all_local = job.local_ranks().is_some_and(|local| local.len() == job.size() as usize);
    let sm_only = all_local && contexts.iter().all(|opened| opened.rails.iter().any(|rail| is_sm(&rail)));
    let frames = rails().filter(|rail| !sm_only || is_sm(rail) || matches!(rail, AnyRail::Dyn(_)));
    let longest = frames.map(|rail| rail.attributes().eager_limit).fold(loopback_frame, u32::max);
    longest.saturating_sub(size_of::<wire::Match>() as u32)
}

/// The engine's limits for a job of `peers` addresses, in which messages of at most `at_once` bytes are sent in one frame.
/// `kept_requests`: how many requests there are beside those of the program.
pub(crate) fn engine_limits(
    config: &Config,
    peers: u32,
    at_once: u32,
    kept_requests: u32,
) -> Result<pml::Config, SetupError> {
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).map_err(|why| SetupError::System("draw random numbers", std::io::Error::other(why)))?;
    let or = |set: u32, each: u32, least: u32| if set == 0 { peers.saturating_mul(each).max(least) } else { set };
    let units = or(config.units, 32, 1024);
    Ok(pml::Config {
        peers,
        requests: config.requests.clamp(1, 1 << 24) + kept_requests,
        unexpected: or(config.unexpected, 128, 4096),
        units,
        unit_bytes: unit_bytes(config, units, at_once),
        probes: 64,
        seed: u64::from_le_bytes(seed),
        first_sequence: 0,
        // Each window takes a region. An operation takes a round trip, so no thread waits long for a free slot.
        rma: rma::Config { regions: 64, operations: 256, window: 16 },
        // The program may unmap the memory of messages at any time, so no registration is kept.
        rdma: rdma::Config { messages: 32, kept_pins: 0, windows: config.verbs.windows },
    })
}

/// Bytes of a payload unit: as configured, but at most as many as can come in one frame, and more than [`SHORT_UNIT_BYTES`] only
/// while all units together stay within [`UNITS_BYTES`]. If the number or the length of units is configured, that budget does not
/// apply.
fn unit_bytes(config: &Config, units: u32, at_once: u32) -> u32 {
    let configured = config.units != 0 || config.unit_bytes != Config::default().unit_bytes;
    let share = if !configured { (UNITS_BYTES / units.max(1)).max(SHORT_UNIT_BYTES) } else { u32::MAX };
    config.unit_bytes.min(at_once).min(share).clamp(64, 1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Units are long enough for tcp's short messages, and take no more memory than short units in jobs of many ranks.
    #[test]
    fn payload_units_stay_within_their_budget() {
        let of = |change: fn(&mut Config), peers, at_once| {
            let mut config = Config::default();
            change(&mut config);
            let limits = engine_limits(&config, peers, at_once, 2).unwrap();
            (limits.units, limits.unit_bytes)
        };
        let tcp = Config::default().tcp.eager_limit_bytes - 24;
        assert_eq!(of(|_| {}, 2, tcp), (1024, 64 << 10));
        assert_eq!(of(|_| {}, 64, tcp), (2048, 32 << 10));
        for peers in [1, 32, 33, 200, 1000, 100_000] {
            let (units, bytes) = of(|_| {}, peers, tcp);
            let all = u64::from(units) * u64::from(bytes);
            assert!(units >= 32 * peers && bytes >= 8 << 10, "{peers} peers: {units} of {bytes}");
            assert!(all <= (64 << 20).max(u64::from(peers) * (256 << 10)), "{peers} peers: {all}");
        }
        assert_eq!(of(|_| {}, 2, 8224), (1024, 8224), "no longer message can come");
        assert_eq!(of(|config| config.unit_bytes = 512, 2, tcp), (1024, 512));
        assert_eq!(of(|config| config.units = 5000, 2, tcp), (5000, 64 << 10));
        assert_eq!(of(|config| config.unit_bytes = 60_000, 1000, tcp), (32_000, 60_000), "as configured");
    }
}
