//! Which settings the system of this host allows.

use towline_net::sockets;
use towline_settings::InvalidSetting;

use crate::Settings;
use crate::system::{options, socket as sys};

impl Settings {
    /// Checks the settings that the system of this host restricts.
    ///
    /// # Errors
    /// The first setting that the system does not allow. A setting with its default value is not checked.
    pub fn check_host(&self) -> Result<(), InvalidSetting> {
        let default = Self::default();
        if self.socket_bytes != 0 {
            sockets::check_buffers(["TOWLINE_TCP_SOCKET_BYTES"; 2], [Some(self.socket_bytes); 2])?;
        }
        if self.host_congestion != default.host_congestion && !self.host_congestion.is_empty() {
            options::check_congestion(&self.host_congestion).map_err(|why| {
                let known = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
                let known = known.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(", ");
                let possible = format!("empty for that of the system, or one of those of this kernel: {known}");
                let why = format!("is refused by the kernel: {why}");
                InvalidSetting::new("TOWLINE_TCP_HOST_CONGESTION", &self.host_congestion, why, possible)
            })?;
        }
        if self.pipe_bytes != default.pipe_bytes && self.pipe_bytes != 0 {
            sys::pipe(self.pipe_bytes).map_err(|why| {
                let most = std::fs::read_to_string("/proc/sys/fs/pipe-max-size").unwrap_or_default();
                let possible = format!("0 for no pipe, or 1 to {} B (the limit is fs.pipe-max-size)", most.trim());
                let why = format!("is refused by the kernel: {why}");
                InvalidSetting::new("TOWLINE_TCP_PIPE_BYTES", self.pipe_bytes, why, possible)
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_refuses_is_named() {
        let of = |change: fn(&mut Settings)| {
            let mut settings = Settings::default();
            change(&mut settings);
            settings.check_host().map_err(|why| why.to_string())
        };
        assert_eq!(of(|_| {}), Ok(()));
        assert_eq!(of(|it| (it.socket_bytes, it.pipe_bytes) = (4096, 4096)), Ok(()));
        assert!(of(|it| it.host_congestion = "nonesuch".into()).unwrap_err().contains("reno"));
        let why = of(|it| it.socket_bytes = 1 << 30).unwrap_err();
        assert!(why.contains("TOWLINE_TCP_SOCKET_BYTES: `1073741824`") && why.contains("net.core.wmem_max"), "{why}");
    }
}
