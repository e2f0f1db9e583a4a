//! The table of the settings of verbs, and how the configuration takes them over.

use std::time::Duration;

use towline_core::rail::native::Pipeline;
use towline_settings::{InvalidSetting, entries};

use crate::config::Config;

towline_settings::settings! {
    /// The settings of a job's verbs rails. The program and the environment can change them.
    pub struct Settings, "verbs." {
        devices, "TOWLINE_VERBS_DEVICES": String = "", "",
            "RDMA devices, or ports of them such as `mlx5_0:1`, that verbs may use; empty for all that are up. The links, and the ranks of a host, use the ports in turn; if there are several networks, link n uses the n-th network";
        gid_index, "TOWLINE_VERBS_GID_INDEX": String = "", "",
            "Index of the port's address (GID) that verbs uses; empty to choose: RoCE v2 before v1, IPv4 before IPv6";
        path_mtu, "TOWLINE_VERBS_PATH_MTU": u32 = 0u32, "B",
            "Longest packet; 0 for the longest that both ports carry";
        traffic_class, "TOWLINE_VERBS_TRAFFIC_CLASS": u8 = 0u8, "",
            "Quality of service of packets in the network: the traffic class with RoCE, the service level with InfiniBand";
        windows, "TOWLINE_VERBS_WINDOWS": bool = false, "",
            "Whether the devices execute puts and gets on windows, where no rail maps the windows, so that the target need not make progress. A rank that uses a window after its owner has dropped it then loses the connection to the owner";
        direct_bytes, "TOWLINE_VERBS_DIRECT_BYTES": String = "", "B",
            "Messages to this rank of at least this length are moved by the devices, from the sender's memory to the receiver's without a copy; 0 for none; empty for what suits the device, which then also decides the next three settings";
        direct_after_bytes, "TOWLINE_VERBS_DIRECT_AFTER_BYTES": u32 = 65_536u32, "B",
            "Bytes at the beginning of such a message that are sent in fragments while memory is registered for the first piece, where `TOWLINE_VERBS_DIRECT_BYTES` is set";
        direct_piece_bytes, "TOWLINE_VERBS_DIRECT_PIECE_BYTES": u32 = 1_048_576u32, "B",
            "Longest piece of such a message: the memory that is registered and moved at a time, where `TOWLINE_VERBS_DIRECT_BYTES` is set";
        direct_get, "TOWLINE_VERBS_DIRECT_GET": bool = false, "",
            "Whether the receiver's device gets such messages, where `TOWLINE_VERBS_DIRECT_BYTES` is set; otherwise the sender's device puts them";
        eager_limit_bytes, "TOWLINE_VERBS_EAGER_LIMIT_BYTES": u32 = 65_600u32, "B",
            "Longest eager frame of verbs, with its header; lower where the devices move shorter messages than that";
        max_send_bytes, "TOWLINE_VERBS_MAX_SEND_BYTES": u32 = 65_600u32, "B",
            "Longest fragment of a long message, with its header";
        inline_bytes, "TOWLINE_VERBS_INLINE_BYTES": u32 = 220u32, "B",
            "Frames of at most this length are part of their work request, as far as the device can do that";
        signal_every, "TOWLINE_VERBS_SIGNAL_EVERY": u32 = 8u32, "",
            "The device reports the completion of one frame in this many";
        receive_buffers, "TOWLINE_VERBS_RECEIVE_BUFFERS": u32 = 128u32, "",
            "Receive buffers of a verbs link for all peers together, each as long as a fragment; their memory is locked";
        bandwidth_mb_s, "TOWLINE_VERBS_BANDWIDTH_MB_S": u32 = 6000u32, "MB/s",
            "Bandwidth of a verbs link, which decides its share in striping";
        connect_timeout_ms, "TOWLINE_VERBS_CONNECT_TIMEOUT_MS": u32 = 120_000u32, "ms",
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
        self.gid_index = match settings.gid_index.trim() {
            "" => None,
            text => Some(towline_settings::parse("TOWLINE_VERBS_GID_INDEX", text)?),
        };
        self.path_mtu_bytes = settings.path_mtu;
        self.traffic_class = settings.traffic_class;
        self.eager_limit_bytes = settings.eager_limit_bytes;
        self.max_send_size_bytes = settings.max_send_bytes;
        self.inline_bytes = settings.inline_bytes;
        self.signal_every = settings.signal_every;
        self.pipeline = pipeline(settings)?;
        self.receive_buffers = settings.receive_buffers;
        self.bandwidth_megabytes_per_second = settings.bandwidth_mb_s;
        self.connect_timeout = Duration::from_millis(settings.connect_timeout_ms.into());
        Ok(())
    }
}

/// Which messages the devices move. `None` where the setting is empty: the device decides.
fn pipeline(settings: &Settings) -> Result<Option<Pipeline>, InvalidSetting> {
    let text = settings.direct_bytes.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let least = text.parse();
    let least = least.map_err(|_| InvalidSetting::new("TOWLINE_VERBS_DIRECT_BYTES", text, "a number of bytes"))?;
    Ok(Some(Pipeline {
        least: if least == 0 { u64::MAX } else { least },
        by_frames: settings.direct_after_bytes.into(),
        piece: settings.direct_piece_bytes.max(4096),
        gets: settings.direct_get,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_move_suitable_messages_or_the_configured_ones() {
        let of =
            |text: &str| pipeline(&Settings { direct_bytes: text.into(), direct_get: true, ..Settings::default() });
        let set = |least| Ok(Some(Pipeline { least, by_frames: 1 << 16, piece: 1 << 20, gets: true }));
        assert_eq!([of(""), of(" 20000 "), of("0")], [Ok(None), set(20_000), set(u64::MAX)]);
        for wrong in ["64K", "-1"] {
            let why = of(wrong).unwrap_err().to_string();
            assert!(why.contains("TOWLINE_VERBS_DIRECT_BYTES") && why.contains(wrong));
        }
    }
}
