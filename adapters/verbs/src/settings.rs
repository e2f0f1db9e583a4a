//! The table of the settings of verbs, and how the configuration takes them over.

use std::time::Duration;

use towline_core::rail::native::Pipeline;
use towline_settings::{InvalidSetting, Values, entries};

use crate::config::{Config, MAX_EAGER, MAX_FRAME};
use crate::sizes::MAX_SHORT_FRAME;

const DEVICES: Values = Values::Checked(
    "names of devices such as mlx5_0, or of their ports such as mlx5_0:1, with commas between them",
    |text| {
        entries(text).iter().try_for_each(|entry| match entry.split_once(':') {
            Some((_, port)) if !matches!(port.parse::<u8>(), Ok(1..)) => {
                Err(format!("has the entry `{entry}`, in which `{port}` is not the number of a port"))
            }
            _ => Ok(()),
        })
    },
);
const GID_INDEX: Values = Values::Checked("empty to choose, or 0 to 255", |text| match text.parse::<u8>() {
    Err(_) if !text.is_empty() => Err("is not a number from 0 to 255".into()),
    _ => Ok(()),
});
const DIRECT: Values = Values::Checked("empty for what suits the device, 0 for none, or a number of bytes", |text| {
    if text.is_empty() || text.parse::<u64>().is_ok() { Ok(()) } else { Err("is not a whole number of bytes".into()) }
});

towline_settings::settings! {
    /// The settings of a job's verbs rails. The program and the environment can change them.
    pub struct Settings, "verbs." {
        devices, "TOWLINE_VERBS_DEVICES": String = "", "" in DEVICES,
            "RDMA devices, or ports of them such as `mlx5_0:1`, that verbs may use; empty for all that are up. The links, and the ranks of a host, use the ports in turn; if there are several networks, link n uses the n-th network";
        gid_index, "TOWLINE_VERBS_GID_INDEX": String = "", "" in GID_INDEX,
            "Index of the port's address (GID) that verbs uses; empty to choose: RoCE v2 before v1, IPv4 before IPv6";
        path_mtu, "TOWLINE_VERBS_PATH_MTU": u32 = 0u32, "B" in Values::power_of_two(256, 4096).or_zero(),
            "Longest packet; 0 for the longest that both ports carry";
        traffic_class, "TOWLINE_VERBS_TRAFFIC_CLASS": u8 = 0u8, "",
            "Quality of service of packets in the network: the traffic class with RoCE, the service level with InfiniBand";
        windows, "TOWLINE_VERBS_WINDOWS": bool = false, "",
            "Whether the devices execute puts and gets on windows, where no rail maps the windows, so that the target need not make progress. A rank that uses a window after its owner has dropped it then loses the connection to the owner";
        direct_bytes, "TOWLINE_VERBS_DIRECT_BYTES": String = "", "B" in DIRECT,
            "Messages to this rank of at least this length are moved by the devices, from the sender's memory to the receiver's without a copy; 0 for none; empty for what suits the device, which then also decides the next three settings";
        direct_after_bytes, "TOWLINE_VERBS_DIRECT_AFTER_BYTES": u32 = 65_536u32, "B",
            "Bytes at the beginning of such a message that are sent in fragments while memory is registered for the first piece, where `TOWLINE_VERBS_DIRECT_BYTES` is set";
        direct_piece_bytes, "TOWLINE_VERBS_DIRECT_PIECE_BYTES": u32 = 1_048_576u32, "B" in Values::at_least(4096),
            "Longest piece of such a message: the memory that is registered and moved at a time, where `TOWLINE_VERBS_DIRECT_BYTES` is set";
        direct_get, "TOWLINE_VERBS_DIRECT_GET": bool = false, "",
            "Whether the receiver's device gets such messages, where `TOWLINE_VERBS_DIRECT_BYTES` is set; otherwise the sender's device puts them";
        eager_limit_bytes, "TOWLINE_VERBS_EAGER_LIMIT_BYTES": u32 = 65_600u32, "B" in Values::range(256, MAX_EAGER),
            "Longest eager frame of verbs, with its header; lower where the devices move shorter messages than that";
        max_send_bytes, "TOWLINE_VERBS_MAX_SEND_BYTES": u32 = 65_600u32, "B" in Values::range(256, MAX_FRAME),
            "Longest fragment of a long message, with its header";
        inline_bytes, "TOWLINE_VERBS_INLINE_BYTES": u32 = 220u32, "B" in Values::range(0, 65_536),
            "Frames of at most this length are part of their work request, as far as the device can do that";
        signal_every, "TOWLINE_VERBS_SIGNAL_EVERY": u32 = 8u32, "" in Values::range(1, 32),
            "The device reports the completion of one frame in this many";
        receive_buffers, "TOWLINE_VERBS_RECEIVE_BUFFERS": u32 = 128u32, "" in Values::range(4, 1 << 14),
            "Receive buffers of a verbs link for all peers together, each as long as a fragment; their memory is locked";
        bandwidth_mb_s, "TOWLINE_VERBS_BANDWIDTH_MB_S": u32 = 6000u32, "MB/s" in Values::at_least(1),
            "Bandwidth of a verbs link, which decides its share in striping";
        connect_timeout_ms, "TOWLINE_VERBS_CONNECT_TIMEOUT_MS": u32 = 120_000u32, "ms" in Values::at_least(1),
            "Longest time from the first message to a peer until its connection is established; a peer that computes answers late";
    }
}

impl Config {
    /// Takes over the settings of a job.
    ///
    /// # Errors
    /// The first setting whose value cannot be understood.
    ///
    /// ```
    /// use towline_net::JobKey;
    /// use towline_verbs::{Config, Settings};
    ///
    /// let mut settings = Settings::default();
    /// settings.devices = "mlx5_0:1,mlx5_1".into();
    /// let mut config = Config::new(1, 0, JobKey::new([0; 32]));
    /// config.apply(&settings)?;
    /// assert_eq!(config.devices, ["mlx5_0:1", "mlx5_1"]);
    /// # Ok::<(), towline_settings::InvalidSetting>(())
    /// ```
    pub fn apply(&mut self, settings: &Settings) -> Result<(), InvalidSetting> {
        self.devices = entries(&settings.devices);
        let refused = |variable, text: &str, values: Values| {
            let why = |why| InvalidSetting::new(variable, text, why, values.describe::<String>(""));
            values.check(text).map_err(why)
        };
        let index = settings.gid_index.trim();
        refused("TOWLINE_VERBS_GID_INDEX", index, GID_INDEX)?;
        refused("TOWLINE_VERBS_DIRECT_BYTES", settings.direct_bytes.trim(), DIRECT)?;
        self.gid_index = index.parse().ok();
        self.path_mtu_bytes = settings.path_mtu;
        self.traffic_class = settings.traffic_class;
        self.eager_limit_bytes = settings.eager_limit_bytes;
        self.max_send_size_bytes = settings.max_send_bytes;
        self.inline_bytes = settings.inline_bytes;
        self.signal_every = settings.signal_every;
        self.pipeline = pipeline(settings);
        self.receive_buffers = settings.receive_buffers;
        self.bandwidth_megabytes_per_second = settings.bandwidth_mb_s;
        self.connect_timeout = Duration::from_millis(settings.connect_timeout_ms.into());
        Ok(())
    }
}

/// Which messages the devices move. `None` where the setting is empty: the device decides.
fn pipeline(settings: &Settings) -> Option<Pipeline> {
    let least = settings.direct_bytes.trim().parse().ok()?;
    Some(Pipeline {
        least: if least == 0 { u64::MAX } else { least },
        by_frames: settings.direct_after_bytes.into(),
        piece: settings.direct_piece_bytes.max(4096),
        gets: settings.direct_get,
    })
}

impl Settings {
    /// Checks the settings that restrict each other. A setting with its default value adapts to the others.
    ///
    /// # Errors
    /// The first setting that cannot be kept beside the others.
    ///
    /// ```
    /// let mut settings = towline_verbs::Settings::default();
    /// settings.direct_get = true; // of which messages?
    /// let why = settings.check().unwrap_err().to_string();
    /// assert!(why.starts_with("TOWLINE_VERBS_DIRECT_GET: `true` has no effect"), "{why}");
    /// ```
    pub fn check(&self) -> Result<(), InvalidSetting> {
        let (default, direct) = (Self::default(), pipeline(self));
        if direct.is_none() {
            for (variable, value, given) in [
                (
                    "TOWLINE_VERBS_DIRECT_AFTER_BYTES",
                    self.direct_after_bytes.to_string(),
                    self.direct_after_bytes != default.direct_after_bytes,
                ),
                (
                    "TOWLINE_VERBS_DIRECT_PIECE_BYTES",
                    self.direct_piece_bytes.to_string(),
                    self.direct_piece_bytes != default.direct_piece_bytes,
                ),
                ("TOWLINE_VERBS_DIRECT_GET", self.direct_get.to_string(), self.direct_get != default.direct_get),
            ] {
                if given {
                    let why = "has no effect while TOWLINE_VERBS_DIRECT_BYTES is empty, since the device decides then";
                    let possible = "any value beside a number in TOWLINE_VERBS_DIRECT_BYTES";
                    return Err(InvalidSetting::new(variable, value, why, possible));
                }
            }
        }
        let (eager, send) = (self.eager_limit_bytes, self.max_send_bytes);
        if send < eager && send != default.max_send_bytes {
            let why = format!("is below TOWLINE_VERBS_EAGER_LIMIT_BYTES, {eager}");
            let possible = format!("{eager} to {MAX_FRAME} B, or less with a lower eager limit");
            return Err(InvalidSetting::new("TOWLINE_VERBS_MAX_SEND_BYTES", send, why, possible));
        }
        let least = direct.map_or(u64::MAX, |direct| direct.least).max(MAX_SHORT_FRAME.into());
        if u64::from(eager) > least && eager != default.eager_limit_bytes {
            let why = format!("is above TOWLINE_VERBS_DIRECT_BYTES, {}", self.direct_bytes.trim());
            let possible = format!("256 to {least} B, or more if the devices move only longer messages");
            return Err(InvalidSetting::new("TOWLINE_VERBS_EAGER_LIMIT_BYTES", eager, why, possible));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_move_suitable_messages_or_the_configured_ones() {
        let of =
            |text: &str| pipeline(&Settings { direct_bytes: text.into(), direct_get: true, ..Settings::default() });
        let set = |least| Some(Pipeline { least, by_frames: 1 << 16, piece: 1 << 20, gets: true });
        assert_eq!([of(""), of(" 20000 "), of("0")], [None, set(20_000), set(u64::MAX)]);
        let mut config = Config::new(1, 0, towline_net::JobKey::new([0; 32]));
        for wrong in ["64K", "-1"] {
            let settings = Settings { direct_bytes: wrong.into(), ..Settings::default() };
            let why = config.apply(&settings).unwrap_err().to_string();
            assert!(why.contains("TOWLINE_VERBS_DIRECT_BYTES") && why.contains(wrong));
        }
    }

    #[test]
    fn a_default_adapts_and_a_given_value_is_kept_or_refused() {
        let of = |change: fn(&mut Settings)| {
            let mut settings = Settings::default();
            change(&mut settings);
            settings.check().map_err(|why| why.variable)
        };
        assert_eq!(of(|_| {}), Ok(()));
        assert_eq!(of(|it| it.direct_after_bytes = 1), Err("TOWLINE_VERBS_DIRECT_AFTER_BYTES"));
        assert_eq!(of(|it| it.direct_piece_bytes = 4096), Err("TOWLINE_VERBS_DIRECT_PIECE_BYTES"));
        assert_eq!(of(|it| (it.direct_piece_bytes, it.direct_bytes) = (4096, "0".into())), Ok(()));
        assert_eq!(of(|it| it.max_send_bytes = 4096), Err("TOWLINE_VERBS_MAX_SEND_BYTES"));
        assert_eq!(of(|it| it.direct_bytes = "20000".into()), Ok(()), "the default eager limit adapts");
        let both = |it: &mut Settings| (it.direct_bytes, it.eager_limit_bytes) = ("20000".into(), 20_001);
        assert_eq!(of(both), Err("TOWLINE_VERBS_EAGER_LIMIT_BYTES"));
    }
}
