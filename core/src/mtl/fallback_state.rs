//! How far the fallback from a device to the rails is.

use crate::pml::Request;
use crate::pml::offload::ENABLED;
use crate::rail::Peer;

/// How far the fallback is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// The device works.
    Device,
    /// Messages to other processes go by the rails. The device still has messages of others, and some may be on their way to it.
    Leaving,
    /// All messages of the devices have arrived, and some have not been received. A receive gets one of them, or goes to the rails.
    Draining,
    /// All messages go by the rails.
    Rails,
}

/// The fallback of a transport.
#[derive(Debug)]
pub(super) struct FallbackState {
    pub stage: Stage,
    /// An announcement that is being received, and its sender.
    pub hearing: Option<(Request, Peer)>,
}

impl FallbackState {
    /// The device works, or there is none.
    pub const NONE: Self = Self { stage: Stage::Device, hearing: None };

    /// Whether messages go by the rails.
    pub fn sends_by_rails(&self) -> bool {
        ENABLED && self.stage != Stage::Device
    }

    /// Whether receives and probes that find no message on the device go to the rails.
    pub fn receives_by_rails(&self) -> bool {
        ENABLED && matches!(self.stage, Stage::Draining | Stage::Rails)
    }

    /// Whether the device has nothing of this process any more.
    pub fn is_over(&self) -> bool {
        ENABLED && self.stage == Stage::Rails
    }
}
