//! The measurements: modes, sizes, and windows.

use std::fmt;
use std::str::FromStr;

/// The kind of a measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Mode {
    /// Half of a round trip.
    Latency,
    /// Bytes per second of a stream of messages.
    Bandwidth,
    /// Messages per second.
    Rate,
    /// A put into a window, including its flush.
    Put,
    /// Bytes per second of a stream of puts.
    PutBandwidth,
    /// Puts per second.
    PutRate,
    /// A get from a window.
    Get,
    /// Bytes per second of gets, one after the other.
    GetBandwidth,
    /// An atomic operation that fetches the old value.
    FetchAdd,
    /// Atomic operations per second, which fetch nothing.
    AddRate,
    /// Bytes per second of a stream of messages that all use one buffer on each side, as osu_bw and ucx_perftest measure it.
    BandwidthOneBuffer,
    /// Messages per second, with one buffer on each side.
    RateOneBuffer,
    /// How much of a transfer is hidden behind a computation that makes no call.
    Overlap,
}

/// The unit of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    Nanos,
    Gigabytes,
    Messages,
    Operations,
}

impl Mode {
    pub const ALL: [Self; 12] = [
        Self::Latency,
        Self::Bandwidth,
        Self::Rate,
        Self::Put,
        Self::PutBandwidth,
        Self::PutRate,
        Self::Get,
        Self::GetBandwidth,
        Self::FetchAdd,
        Self::AddRate,
        Self::BandwidthOneBuffer,
        Self::RateOneBuffer,
    ];

    /// The modes of messages, which are measured by default.
    const STANDARD: [Self; 3] = [Self::Latency, Self::Bandwidth, Self::Rate];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Bandwidth => "bandwidth",
            Self::Rate => "rate",
            Self::Put => "put",
            Self::PutBandwidth => "put-bandwidth",
            Self::PutRate => "put-rate",
            Self::Get => "get",
            Self::GetBandwidth => "get-bandwidth",
            Self::FetchAdd => "fetch-add",
            Self::AddRate => "add-rate",
            Self::BandwidthOneBuffer => "bandwidth-one-buffer",
            Self::RateOneBuffer => "rate-one-buffer",
            Self::Overlap => "overlap",
        }
    }

    /// The unit of its values.
    pub const fn unit(self) -> Unit {
        match self {
            // The table of the mode overlap has times.
            Self::Latency | Self::Put | Self::Get | Self::FetchAdd | Self::Overlap => Unit::Nanos,
            Self::Bandwidth | Self::BandwidthOneBuffer | Self::PutBandwidth | Self::GetBandwidth => Unit::Gigabytes,
            Self::Rate | Self::RateOneBuffer => Unit::Messages,
            Self::PutRate | Self::AddRate => Unit::Operations,
        }
    }

    /// Whether only the first of the two ranks acts.
    pub fn is_one_sided(self) -> bool {
        !Self::STANDARD.contains(&self) && !self.has_one_buffer() && self != Self::Overlap
    }

    /// Whether all messages of a stream use the same buffer.
    pub fn has_one_buffer(self) -> bool {
        matches!(self, Self::BandwidthOneBuffer | Self::RateOneBuffer)
    }
}

impl Unit {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nanos => "ns",
            Self::Gigabytes => "GB/s",
            Self::Messages => "messages/s",
            Self::Operations => "operations/s",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let names = Self::ALL.map(Self::name);
        let unknown =
            || format!("it {}; possible: {}", towline_settings::unknown("mode", name, &names), names.join(", "));
        Self::ALL.into_iter().find(|mode| mode.name() == name).ok_or_else(unknown)
    }
}

/// A message's size in bytes, at most 1 GiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size(pub usize);

impl FromStr for Size {
    type Err = String;

    /// Parses a number, with K, M or G behind it for powers of 1024.
    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
        let scale = match text[digits.len()..].trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kb" | "kib" => 1 << 10,
            "m" | "mb" | "mib" => 1 << 20,
            "g" | "gb" | "gib" => 1 << 30,
            _ => return Err(format!("`{text}` is not a size such as 8, 4K or 4M")),
        };
        let count: usize = digits.parse().map_err(|_| format!("`{text}` is not a size such as 8, 4K or 4M"))?;
        count
            .checked_mul(scale)
            .filter(|bytes| *bytes <= 1 << 30)
            .map(Self)
            .ok_or_else(|| format!("{text}: a message has at most 1 GiB"))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, unit) = match self.0 {
            bytes if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => (bytes >> 20, "MiB"),
            bytes if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => (bytes >> 10, "KiB"),
            bytes => (bytes, "B"),
        };
        f.pad(&format!("{count} {unit}"))
    }
}

/// Number of messages in flight, for bandwidth and rate. Each has a buffer of its own, unless the mode has one buffer.
pub fn window(mode: Mode, bytes: usize) -> usize {
    match mode.unit() {
        Unit::Nanos => 1,
        Unit::Gigabytes => (8usize << 20).checked_div(bytes).unwrap_or(64).clamp(2, 64),
        Unit::Messages | Unit::Operations => (8usize << 20).checked_div(bytes).unwrap_or(256).clamp(2, 256),
    }
}

/// All measurements, in order.
pub fn measures(modes: &[Mode], sizes: &[Size], quick: bool) -> Vec<(Mode, Size)> {
    const K: usize = 1 << 10;
    let latency: &[usize] = if quick {
        &[8, 4 * K, 64 * K, 4096 * K]
    } else {
        &[0, 8, 64, 256, K, 4 * K, 8 * K, 16 * K, 64 * K, 256 * K, 1024 * K, 4096 * K]
    };
    let bandwidth: &[usize] =
        if quick { &[64 * K, 4096 * K] } else { &[K, 4 * K, 8 * K, 16 * K, 64 * K, 256 * K, 1024 * K, 4096 * K] };
    let modes = if modes.is_empty() { &Mode::STANDARD } else { modes };
    let mut all = Vec::new();
    for mode in modes {
        let standard = match mode {
            Mode::Latency => latency,
            Mode::Bandwidth | Mode::BandwidthOneBuffer | Mode::PutBandwidth | Mode::GetBandwidth => bandwidth,
            Mode::Put | Mode::Get => latency.get(usize::from(!quick)..).unwrap_or(latency),
            Mode::Rate | Mode::RateOneBuffer | Mode::PutRate | Mode::FetchAdd | Mode::AddRate => &[8],
            Mode::Overlap => &[], // measured by other ranks
        };
        // The rate is measured with short messages, unless the rate is the only mode.
        let fixed = matches!(mode, Mode::FetchAdd | Mode::AddRate);
        let alone = modes.len() == 1 || !matches!(mode, Mode::Rate | Mode::RateOneBuffer | Mode::PutRate);
        let asked = !sizes.is_empty() && !fixed && alone;
        let of_mode = if asked { sizes.to_vec() } else { standard.iter().copied().map(Size).collect() };
        let moves_bytes = |size: &Size| *mode == Mode::Latency || size.0 > 0;
        all.extend(of_mode.into_iter().filter(moves_bytes).map(|size| (*mode, size)));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [("0", 0), ("8", 8), ("4K", 4096), ("4KiB", 4096), ("4 MiB", 4 << 20), ("1g", 1 << 30)] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for wrong in ["", "K", "-1", "2G", "8 bytes", "99999999999999999999", "4.5K"] {
            assert!(wrong.parse::<Size>().is_err(), "{wrong}");
        }
        assert_eq!(Size(4 << 20).to_string().parse(), Ok(Size(4 << 20)));
        assert_eq!(Size(1000).to_string(), "1000 B");
    }

    #[test]
    fn the_rate_is_measured_with_eight_bytes_unless_it_is_the_only_mode() {
        let sizes = [Size(0), Size(100)];
        let all = measures(&[], &sizes, false);
        assert!(all.contains(&(Mode::Rate, Size(8))) && !all.contains(&(Mode::Rate, Size(100))));
        assert!(all.contains(&(Mode::Latency, Size(0))) && !all.contains(&(Mode::Bandwidth, Size(0))));
        assert_eq!(measures(&[Mode::Rate], &[Size(100)], false), [(Mode::Rate, Size(100))]);
    }

    #[test]
    fn atomics_have_eight_bytes_and_every_mode_has_its_name() {
        assert_eq!(measures(&[Mode::FetchAdd], &[Size(100)], false), [(Mode::FetchAdd, Size(8))]);
        assert!(measures(&[Mode::Put, Mode::Get], &[], false).iter().all(|(_, size)| size.0 > 0));
        for mode in Mode::ALL {
            assert_eq!(mode.name().parse(), Ok(mode));
            assert_eq!(clap::ValueEnum::to_possible_value(&mode).unwrap().get_name(), mode.name());
        }
    }

    #[test]
    fn a_stream_with_one_buffer_is_measured_like_one_with_many() {
        for (one, many) in [(Mode::BandwidthOneBuffer, Mode::Bandwidth), (Mode::RateOneBuffer, Mode::Rate)] {
            assert!(one.has_one_buffer() && !many.has_one_buffer() && !one.is_one_sided());
            assert_eq!((one.unit(), window(one, 1024)), (many.unit(), window(many, 1024)));
            let sizes = |mode| measures(&[mode], &[], false).into_iter().map(|(_, size)| size).collect::<Vec<_>>();
            assert_eq!(sizes(one), sizes(many));
        }
    }

    #[test]
    fn a_window_stays_small_in_memory() {
        assert_eq!([0, 8, 4 << 20, 1 << 30].map(|bytes| window(Mode::Bandwidth, bytes)), [64, 64, 2, 2]);
        assert_eq!(window(Mode::Rate, 8), 256);
    }
}
