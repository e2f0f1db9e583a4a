//! What is measured: modes, sizes, windows.

use std::fmt;
use std::str::FromStr;

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Mode {
    /// Half of a round trip.
    Latency,
    /// Bytes per second of messages that follow each other.
    Bandwidth,
    /// Messages per second.
    Rate,
}

impl Mode {
    const ALL: [Self; 3] = [Self::Latency, Self::Bandwidth, Self::Rate];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Bandwidth => "bandwidth",
            Self::Rate => "rate",
        }
    }

    /// What its values count.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Latency => "ns",
            Self::Bandwidth => "GB/s",
            Self::Rate => "messages/s",
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
        Self::ALL.into_iter().find(|mode| mode.name() == name).ok_or_else(|| format!("`{name}` is no mode"))
    }
}

/// A message's size in bytes, at most 1 GiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size(pub usize);

impl FromStr for Size {
    type Err = String;

    /// A number, with K, M or G behind it for powers of 1024.
    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
        let scale = match text[digits.len()..].trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kb" | "kib" => 1 << 10,
            "m" | "mb" | "mib" => 1 << 20,
            "g" | "gb" | "gib" => 1 << 30,
            _ => return Err(format!("`{text}` is no size such as 8, 4K or 4M")),
        };
        let count: usize = digits.parse().map_err(|_| format!("`{text}` is no size such as 8, 4K or 4M"))?;
        count
            .checked_mul(scale)
            .filter(|bytes| *bytes <= 1 << 30)
            .map(Self)
            .ok_or_else(|| format!("{text}: over 1 GiB"))
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

/// Messages under way at once, for bandwidth and rate: each has a place of its own in memory.
pub fn window(mode: Mode, bytes: usize) -> usize {
    match mode {
        Mode::Latency => 1,
        Mode::Bandwidth => (8usize << 20).checked_div(bytes).unwrap_or(64).clamp(2, 64),
        Mode::Rate => (8usize << 20).checked_div(bytes).unwrap_or(256).clamp(2, 256),
    }
}

/// All that is to be measured, in order.
pub fn measures(modes: &[Mode], sizes: &[Size], quick: bool) -> Vec<(Mode, Size)> {
    const K: usize = 1 << 10;
    let latency: &[usize] = if quick {
        &[8, 4 * K, 64 * K, 4096 * K]
    } else {
        &[0, 8, 64, 256, K, 4 * K, 8 * K, 16 * K, 64 * K, 256 * K, 1024 * K, 4096 * K]
    };
    let bandwidth: &[usize] =
        if quick { &[64 * K, 4096 * K] } else { &[K, 4 * K, 8 * K, 16 * K, 64 * K, 256 * K, 1024 * K, 4096 * K] };
    let modes = if modes.is_empty() { &Mode::ALL } else { modes };
    let mut all = Vec::new();
    for mode in modes {
        let standard = match mode {
            Mode::Latency => latency,
            Mode::Bandwidth => bandwidth,
            Mode::Rate => &[8],
        };
        // The rate is that of short messages, unless it alone is asked for.
        let asked = !sizes.is_empty() && (*mode != Mode::Rate || modes.len() == 1);
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
    fn the_rate_is_that_of_eight_bytes_unless_it_alone_is_asked_for() {
        let sizes = [Size(0), Size(100)];
        let all = measures(&[], &sizes, false);
        assert!(all.contains(&(Mode::Rate, Size(8))) && !all.contains(&(Mode::Rate, Size(100))));
        assert!(all.contains(&(Mode::Latency, Size(0))) && !all.contains(&(Mode::Bandwidth, Size(0))));
        assert_eq!(measures(&[Mode::Rate], &[Size(100)], false), [(Mode::Rate, Size(100))]);
    }

    #[test]
    fn a_window_stays_small_in_memory() {
        assert_eq!([0, 8, 4 << 20, 1 << 30].map(|bytes| window(Mode::Bandwidth, bytes)), [64, 64, 2, 2]);
        assert_eq!(window(Mode::Rate, 8), 256);
    }
}
