//! How a rail is opened.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;

use towline_core::time::Instant;
use towline_net::{JobKey, random};
use towline_settings::InvalidSetting;

use super::endpoint_lists::{EndpointLists, Timers};
use super::hello_channel::HelloChannel;
use super::local_port::{LocalPort, attributes};
use super::peers::Peers;
use super::queues::Queues;
use super::receive::ReceiveState;
use super::send::{SendState, UserMemory};
use super::state::{Health, Rail};
use crate::address::{GidKind, Mtu};
use crate::bookkeeping::closing::ClosingQueuePairs;
use crate::bookkeeping::round_robin::RoundRobin;
use crate::bookkeeping::send_resources::SendResources;
use crate::config::{Config, HARDWARE_PIPELINE, SOFT_ROCE_PIPELINE};
use crate::counters::Counters;
use crate::device::{Device, MAX_POSTS, Port, open};
use crate::error::SetupError;
use crate::sizes::{CONTROL_FRAMES, MAX_MARKERS, MAX_OPS};
use crate::wire::card::Card;

/// The highest service level of InfiniBand, which has 4 bits for it.
const MAX_SERVICE_LEVEL: u8 = 15;

impl Rail {
    /// Opens a port. Contacts no peer.
    ///
    /// # Errors
    /// [`SetupError`]: it says what is missing, or what the device refused.
    pub fn new(config: Config) -> Result<Self, SetupError> {
        let (config, device, port) = open_port(config)?;
        let queues = Queues::new(&config, device, &port)?;
        let (instance, key) = random_identity()?;
        let hellos = HelloChannel::new(&queues, port.number, key)
            .map_err(|why| SetupError::Refused("make a queue pair for datagrams", why))?;
        let attributes = attributes(&config, &port);
        let local = local_port(&config, port, instance, hellos.queue_pair.number(), key);
        let resources = SendResources::new(config.eager_buffers, config.bulk_buffers, MAX_MARKERS, MAX_OPS);
        let mut rail = Self {
            attributes,
            local,
            peers: Peers::new(),
            lists: EndpointLists::default(),
            timers: Timers::default(),
            receive: ReceiveState::new(config.receive_buffers),
            send: SendState { resources, granted: None },
            user_memory: UserMemory::default(),
            closing: ClosingQueuePairs::new(),
            keepalive_order: RoundRobin::default(),
            health: Health::default(),
            armed: false,
            now: Instant::ZERO,
            counters: Counters::default(),
            hellos,
            queues,
            config,
        };
        rail.post_all_buffers().map_err(|why| SetupError::Refused("post a receive", why))?;
        Ok(rail)
    }

    /// Posts all receive buffers, those of hellos included.
    fn post_all_buffers(&mut self) -> std::io::Result<()> {
        let all: Vec<u32> = (0..self.queues.layout.receive.count()).collect();
        for some in all.chunks(MAX_POSTS) {
            self.queues.post_receives(some)?;
        }
        self.hellos.post_all(&self.queues)
    }
}

/// Opens the device of a port, and fits the settings to it.
fn open_port(config: Config) -> Result<(Config, Arc<Device>, Port), SetupError> {
    let asked = config.peer_timeout;
    let (device, port) = open(&config)?;
    check_device(&config, &port).map_err(SetupError::Setting)?;
    let mut config = config.normalized(if port.is_soft_roce { SOFT_ROCE_PIPELINE } else { HARDWARE_PIPELINE });
    if asked.is_zero() || asked > config.peer_timeout {
        let most = config.peer_timeout.as_secs();
        log::warn!(
            "verbs link {}: a peer is lost when its device does not acknowledge for {most} s, since no device waits longer",
            config.link
        );
    }
    config.receive_buffers = config.receive_buffers.min(port.max_shared_receives.max(4));
    let most_frames = port.max_work_requests.saturating_sub(CONTROL_FRAMES + 1).max(4);
    config.send_queue_frames = config.send_queue_frames.min(most_frames);
    config.signal_every = config.signal_every.min(config.send_queue_frames / 2);
    Ok((config, device, port))
}

/// Checks the settings that the device of a port restricts. A setting with its default value adapts to the device.
fn check_device(config: &Config, port: &Port) -> Result<(), InvalidSetting> {
    let default = Config::new(0, 0, JobKey::new([0; 32]));
    let (buffers, most) = (config.receive_buffers, port.max_shared_receives.max(4));
    if buffers > most && buffers != default.receive_buffers {
        let why = format!("is above the limit of {}, {most}", port.name);
        return Err(InvalidSetting::new("TOWLINE_VERBS_RECEIVE_BUFFERS", buffers, why, format!("4 to {most}")));
    }
    let (mtu, most) = (config.path_mtu_bytes, port.mtu.bytes());
    if mtu > most {
        let why = format!("is above the MTU of {}, {most}", port.name);
        return Err(InvalidSetting::new("TOWLINE_VERBS_PATH_MTU", mtu, why, format!("0, or 256 to {most} B")));
    }
    if port.address.entry.kind == GidKind::InfiniBand && config.traffic_class > MAX_SERVICE_LEVEL {
        let (class, most) = (config.traffic_class, MAX_SERVICE_LEVEL);
        let why = format!("is above {most}, the highest service level of InfiniBand, which {} uses", port.name);
        return Err(InvalidSetting::new("TOWLINE_VERBS_TRAFFIC_CLASS", class, why, format!("0 to {most}")));
    }
    Ok(())
}

/// A random instance, and a random Q_Key.
fn random_identity() -> Result<(u64, u32), SetupError> {
    let refused = |why| SetupError::Refused("draw random bytes", why);
    let instance = random::instance().map_err(refused)?;
    // Q_Keys with the highest bit set are the device's own.
    let key = u32::from_le_bytes(random::bytes().map_err(refused)?) & 0x7fff_ffff;
    Ok((instance, key))
}

/// The port and the rail's card. `hello_queue` and `hello_key` are the number and the Q_Key of the queue pair that receives
/// hellos.
fn local_port(config: &Config, port: Port, instance: u64, hello_queue: u32, hello_key: u32) -> LocalPort {
    let asked = if config.path_mtu_bytes == 0 { None } else { Mtu::within(config.path_mtu_bytes) };
    let mtu = asked.map_or(port.mtu, |asked| asked.min(port.mtu));
    log::debug!("verbs link {}: {}, {}, packets of {} bytes", config.link, port.name, port.address, mtu.bytes());
    let card = Card {
        link: config.link,
        kind: port.address.entry.kind,
        mtu,
        job: config.job,
        instance,
        rank: config.rank,
        hello_queue,
        hello_key,
        longest: config.max_send_size_bytes,
        gid: port.address.entry.gid,
        lid: port.lid,
        reads: port.max_reads_in,
    };
    LocalPort { card: card.encode(), port, mtu, instance }
}

impl AsFd for Rail {
    /// The wait handle: readable when there is work for `poll`, once `arm` has answered `true`. The rail owns it.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queues.channel.as_fd()
    }
}

impl AsRawFd for Rail {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.queues.channel.as_fd().as_raw_fd()
    }
}
