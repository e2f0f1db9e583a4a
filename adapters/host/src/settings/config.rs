//! The configuration of a world: the table of settings that belong to no transport, and the tables of the transports.
//!
//! Each transport has the table of its settings in its own crate (`settings.rs`). [`Config`] contains all of them. The program
//! sets them as fields, and the environment overrides the program.

use std::time::Duration;

use towline_bootstrap::report::UnmatchedPolicy;
use towline_net::{Encrypt, listen};
use towline_settings::{InvalidSetting, Origin, Setting, Table, Values, entries, unknown};
use towline_verbs::{LONGEST_PEER_TIMEOUT, SHORTEST_PEER_TIMEOUT};

use crate::errors::setup::SetupError;

towline_settings::settings! {
    /// The configuration of a [`World`](crate::World). Each field is also read from an environment variable, which replaces the
    /// value that the program has set. The variable is `TOWLINE_` and the path of the field in capitals: `TOWLINE_TCP_INCLUDE`
    /// for `tcp.include`.
    ///
    /// ```
    /// let mut config = towline::Config::default();
    /// config.requests = 1000;
    /// config.tcp.include = "10.0.0.0/8".into();
    /// assert_eq!(config.unit_bytes, 65_536);
    /// ```
    pub struct Config, "" {
        transports, "TOWLINE_TRANSPORTS": String = "", "" in TRANSPORT_LIST,
            "Transports to use, such as `sm,tcp`; empty for these two, if they work here; udp, verbs, dpu and dpu-frames are used only if they are named; dpu alone stands for `sm,tcp,dpu`";
        links, "TOWLINE_LINKS": u32 = 1u32, "" in Values::range(1, MAX_LINKS),
            "Links of tcp, of udp and of verbs to each peer, over which long messages are striped: 1 to 64. With several links, the frames of a link that fails are sent by the others";
        bundle, "TOWLINE_BUNDLE": bool = false, "",
            "Whether a runtime that does its own matching (BTL face) gets one module for all `links` of a transport, which goes on while one of them works, instead of one module for each. All processes need the same value. Ranks and workers need no bundle for that";
        startup_timeout_ms, "TOWLINE_STARTUP_TIMEOUT_MS": u32 = 60_000u32, "ms",
            "How long to wait for all ranks to start";
        finish_timeout_ms, "TOWLINE_FINISH_TIMEOUT_MS": u32 = 60_000u32, "ms",
            "How long to wait for all ranks to finish";
        peer_timeout_ms, "TOWLINE_PEER_TIMEOUT_MS": u32 = 5_000u32, "ms",
            "How long a host may be silent before its ranks count as lost; 0 leaves that to the kernel, whose limit is hours. RDMA devices use at most 30 s, also for 0, and may take up to four times the set time. A rank that computes or is stopped is not lost";
        stall_timeout_ms, "TOWLINE_STALL_TIMEOUT_MS": u32 = 0u32, "ms",
            "A rank for which another one waits counts as dead when it has made no progress for this time, over any transport; this includes a rank that is stopped, or that computes without a progress thread; 0 for no limit";

        bootstrap, "TOWLINE_BOOTSTRAP": String = "auto", "" in Values::OneOf(&["auto", "own", "pmix"]),
            "How ranks join their job: `own` by `towline run` or the variables of `TOWLINE_RANK`, `pmix` by a PMIx launcher (mpirun, prterun, srun), `auto` for the one that has started the process";
        pmix_library, "TOWLINE_PMIX_LIBRARY": String = "", "",
            "Path of the PMIx library; empty for `libpmix.so.2`, where the system finds it";

        requests, "TOWLINE_REQUESTS": u32 = 65_536u32, "" in Values::range(1, MAX_SLOTS),
            "Most operations in progress at a time; entries that were never used take no memory";
        unexpected, "TOWLINE_UNEXPECTED": u32 = 0u32, "" in Values::range(0, MAX_SLOTS),
            "Envelopes for messages that arrive before their receive is posted, for all peers together; 0 for 128 for each peer, and at least 4096";
        units, "TOWLINE_UNITS": u32 = 0u32, "" in Values::range(0, MAX_SLOTS),
            "Payload units for messages that arrive before their receive is posted, for all peers together; 0 for 32 for each peer, and at least 1024";
        unit_bytes, "TOWLINE_UNIT_BYTES": u32 = 65_536u32, "B" in UNIT_BYTES,
            "Length of a payload unit: a longer message is sent to this process only after its receive is posted. Units are shorter if no transport sends as much in one frame. Unless this or `units` is set, they are also shorter if all units together would take more than 64 MiB, but at least 8 KiB";
        communicators, "TOWLINE_COMMUNICATORS": u32 = 256u32, "" in Values::range(1, MAX_SLOTS),
            "Most communicators";

        spin_us, "TOWLINE_SPIN_US": u32 = 50u32, "us",
            "How long a waiting rank polls, and yields the processor now and then, if no rank has to share its processor";
        yield_us, "TOWLINE_YIELD_US": u32 = 200u32, "us",
            "How long a waiting rank then yields the processor after each poll, before it sleeps: for each rank that shares the processor; not where another program keeps the processor then";
        idle_sleep_ms, "TOWLINE_IDLE_SLEEP_MS": u32 = 500u32, "ms" in Values::at_least(1),
            "Longest sleep of a waiting rank, if nothing wakes it";
        progress_thread, "TOWLINE_PROGRESS_THREAD": String = "auto", "" in Values::OneOf(&["always", "never", "auto"]),
            "Whether a thread of the library makes progress while the program computes: `always`, `never`, or `auto`: only with udp, which loses frames and detects lost hosts by heartbeats. All ranks need the same value";
        unwind_timeout_ms, "TOWLINE_UNWIND_TIMEOUT_MS": u32 = 10_000u32, "ms",
            "How long a panicking rank waits until messages from borrowed memory have been sent, before it aborts the process";

        finish_report_ms, "TOWLINE_FINISH_REPORT_MS": u32 = 1000u32, "ms",
            "A rank that has waited in `finish` for this time makes the launcher print once for whom all ranks wait; 0 for never";
        unmatched, "TOWLINE_UNMATCHED": UnmatchedPolicy = UnmatchedPolicy::Warn, "" in Values::OneOf(&["warn", "error", "ignore"]),
            "What happens at the end for messages that no receive has taken: `warn` prints one line for the job, `error` also makes `finish` and the job fail, `ignore` does nothing";

        encrypt, "TOWLINE_ENCRYPT": Encrypt = Encrypt::BetweenHosts, "" in Values::OneOf(&["off", "between-hosts", "always"]),
            "When connections of tcp and udp are encrypted: `off`, `between-hosts` (not between ranks of one host; containers with a network of their own count as hosts) or `always`; two ranks for which this has different results refuse each other. Data sent by verbs is never encrypted, so verbs does not work with `always`. In any case peers prove that they know the job's key";
        checksum, "TOWLINE_CHECKSUM": bool = false, "",
            "Whether frames of tcp have checksums of the library, beside those of the network; frames of udp always have them";
        link_window, "TOWLINE_LINK_WINDOW": u32 = 256u32, "" in Values::power_of_two(4, 1024),
            "Most unacknowledged frames to one peer, for each link with acknowledgements: a power of two from 4 to 1024";
        strict, "TOWLINE_STRICT": bool = false, "",
            "Whether warnings about the start of a job are errors: an unknown variable whose name begins with `TOWLINE_`, and a transport that is left out because it does not work";
    }
    /// Settings of shared memory.
    pub sm: towline_sm::Settings;
    /// Settings of TCP.
    pub tcp: towline_tcp::Settings;
    /// Settings of UDP.
    pub udp: towline_udp::Settings;
    /// Settings of RDMA devices.
    pub verbs: towline_verbs::Settings;
    /// Settings of DPUs.
    pub dpu: towline_dpu::Settings;
}

/// The transports that have rails, in the order in which these are polled.
pub(crate) const WITH_RAILS: [&str; 5] = ["sm", "tcp", "udp", "verbs", DPU_FRAMES];
/// The transport that matches messages by itself, beside the rails.
pub(crate) const DPU: &str = "dpu";
/// The transport whose rail is a DPU, for an engine of the host.
pub(crate) const DPU_FRAMES: &str = "dpu-frames";
/// All transports.
pub(crate) const TRANSPORTS: [&str; 6] = ["sm", "tcp", "udp", "verbs", DPU, DPU_FRAMES];

const TRANSPORT_LIST: Values = Values::Checked(
    "sm, tcp, udp, verbs, dpu and dpu-frames, with commas between them; empty for sm and tcp",
    |text| {
        let known = |name: &String| TRANSPORTS.contains(&name.as_str()) || name == "loopback";
        let names = entries(text);
        if [DPU, DPU_FRAMES].iter().all(|one| names.iter().any(|name| name == one)) {
            return Err("names dpu and dpu-frames, but a DPU is the one or the other: leave one of them out".into());
        }
        match names.iter().find(|name| !known(name)) {
            Some(name) if names.len() == 1 => Err(unknown("transport", name, &TRANSPORTS)),
            Some(name) => Err(format!("contains `{name}`, which {}", unknown("transport", name, &TRANSPORTS))),
            None => Ok(()),
        }
    },
);
/// Most links to a peer.
const MAX_LINKS: u32 = 64;
/// Most entries of a table of the engine.
const MAX_SLOTS: u32 = 1 << 24;
/// Bytes of a payload unit.
const UNIT_BYTES: Values = Values::range(64, 1 << 20);

impl Config {
    /// This configuration with the environment variables of this process, which replace the values of the program.
    ///
    /// # Errors
    /// As [`settings_from`](Self::settings_from).
    ///
    /// ```
    /// let config = towline::Config::default().with_environment()?;
    /// assert!(config.links >= 1);
    /// # Ok::<(), towline::SetupError>(())
    /// ```
    pub fn with_environment(self) -> Result<Self, SetupError> {
        Ok(self.in_force(process_environment)?.0)
    }

    /// All settings, with their values and where these come from. Environment variables replace the values of the program.
    ///
    /// # Errors
    /// As [`settings_from`](Self::settings_from).
    ///
    /// ```
    /// let settings = towline::Config::default().settings()?;
    /// let spin = settings.iter().find(|setting| setting.name == "spin_us").unwrap();
    /// assert_eq!((spin.unit, spin.variable), ("us", "TOWLINE_SPIN_US"));
    /// # Ok::<(), towline::SetupError>(())
    /// ```
    pub fn settings(&self) -> Result<Vec<Setting>, SetupError> {
        self.settings_from(process_environment)
    }

    /// As [`settings`](Self::settings), with the variables that `environment` returns instead of those of this process. With this
    /// a launcher checks the settings of a rank before it starts the rank.
    ///
    /// # Errors
    /// [`SetupError::Setting`] for a value that no rank can keep, whether the environment or the program has set it. Values that
    /// only the machine of a rank makes impossible are found where the world is built.
    ///
    /// ```
    /// let many = |name: &str| (name == "TOWLINE_LINKS").then(|| "1000".to_string());
    /// let why = towline::Config::default().settings_from(many).unwrap_err();
    /// assert_eq!(why.to_string(), "TOWLINE_LINKS: `1000` is above 64; possible: 1 to 64");
    /// ```
    pub fn settings_from(&self, environment: impl Fn(&str) -> Option<String>) -> Result<Vec<Setting>, SetupError> {
        Ok(self.clone().in_force(environment)?.1)
    }

    /// This configuration with the variables of `environment`, and the list of all settings.
    pub(crate) fn in_force(
        mut self,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<(Self, Vec<Setting>), SetupError> {
        let mut settings = Vec::new();
        self.read(&environment, &mut settings)?;
        self.check().map_err(|why| {
            let origin = settings.iter().find(|setting| setting.variable == why.variable).map(|setting| setting.origin);
            why.with_origin(origin.unwrap_or(Origin::Program))
        })?;
        Ok((self, settings))
    }

    /// Checks the settings that restrict each other. Each value by itself is possible.
    fn check(&self) -> Result<(), InvalidSetting> {
        self.sm.check()?;
        self.tcp.check()?;
        self.verbs.check()?;
        let last_link = (self.links.clamp(1, MAX_LINKS) - 1) as u8;
        listen::advertised("TOWLINE_TCP_ADVERTISE", &self.tcp.advertise, last_link)?;
        listen::advertised("TOWLINE_UDP_ADVERTISE", &self.udp.advertise, last_link)?;
        if !entries(&self.transports).iter().any(|name| name == "verbs") {
            return Ok(());
        }
        if self.encrypt == Encrypt::Always {
            let why = "is impossible with verbs in TOWLINE_TRANSPORTS, since RDMA devices cannot encrypt";
            let possible = "off or between-hosts, or other transports";
            return Err(InvalidSetting::new("TOWLINE_ENCRYPT", self.encrypt, why, possible));
        }
        let limits = SHORTEST_PEER_TIMEOUT..=LONGEST_PEER_TIMEOUT;
        let timeout = Duration::from_millis(self.peer_timeout_ms.into());
        if !timeout.is_zero() && !limits.contains(&timeout) {
            let why = "is impossible with verbs in TOWLINE_TRANSPORTS: RDMA devices have other limits";
            let (least, most) = (limits.start().as_millis() + 1, limits.end().as_millis());
            let possible = format!("0, or {least} to {most} ms, or other transports");
            return Err(InvalidSetting::new("TOWLINE_PEER_TIMEOUT_MS", self.peer_timeout_ms, why, possible));
        }
        Ok(())
    }
}

/// A variable of the environment of this process. Bytes that are not UTF-8 are replaced, so that a value with such bytes is
/// refused and not ignored.
pub(crate) fn process_environment(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use towline_settings::Origin;

    use super::*;

    #[test]
    fn the_environment_overrides_the_program_and_both_are_named() {
        let config = Config { requests: 7, units: 9, ..Config::default() };
        let environment = |name: &str| (name == "TOWLINE_UNITS").then(|| " 11 ".to_string());
        let (config, settings) = config.in_force(environment).unwrap();
        assert_eq!((config.requests, config.units), (7, 11));
        let origin = |name| settings.iter().find(|setting| setting.name == name).map(|setting| setting.origin);
        assert_eq!(origin("requests"), Some(Origin::Program));
        assert_eq!(origin("units"), Some(Origin::Environment));
        assert_eq!(origin("links"), Some(Origin::Default));
    }

    #[test]
    fn each_variable_is_the_name_in_capitals_and_a_wrong_value_is_refused() {
        let settings = Config::default().settings_from(|_| None).unwrap();
        for setting in &settings {
            let name = setting.name.to_uppercase().replace('.', "_");
            assert_eq!(setting.variable, format!("TOWLINE_{name}"));
            assert_eq!(setting.value, setting.default);
        }
        for prefix in ["sm.", "tcp.", "udp.", "verbs.", "dpu."] {
            assert!(settings.iter().any(|setting| setting.name.starts_with(prefix)), "{prefix}");
        }
        let many = |name: &str| (name == "TOWLINE_LINKS").then(|| "many".into());
        let wrong = Config::default().settings_from(many).unwrap_err();
        assert!(wrong.to_string().contains("TOWLINE_LINKS"), "{wrong}");
    }
}
