//! The setting of a job.

use std::collections::BTreeSet;

use towline_core::pml::Config;

use super::rails::LinkParams;
use super::window_state::Windows;
use crate::random::Random;
use crate::sim::network::faults::{Faults, RailParams};
use crate::sim::plan::Plan;

/// A node that dies.
#[derive(Clone, Copy, Debug)]
pub struct Death {
    /// The node.
    pub node: u32,
    /// After how many of its own steps, counted in its present incarnation. Calls of its engine count as steps.
    pub calls: u64,
    /// After how many nanoseconds it restarts, if it does.
    pub back_after: Option<u64>,
    /// Its host is lost with it.
    pub with_host: bool,
}

/// A rail that a node disables for some time.
#[derive(Clone, Copy, Debug)]
pub struct Toggle {
    /// The node.
    pub node: u32,
    /// The rail.
    pub rail: u32,
    /// After how many steps of the node, as for a [`Death`].
    pub calls: u64,
    /// For how many nanoseconds.
    pub span: u64,
}

/// Everything that a job runs with.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The configuration of the engines. `peers` is the number of nodes. Each node gets its own seed and first sequence
    /// number.
    pub config: Config,
    /// The parameters of the rails of each node.
    pub rail_params: Vec<RailParams>,
    /// If set, the rails are links over these rails.
    pub links: Option<LinkParams>,
    /// The faults.
    pub faults: Faults,
    /// The deaths of nodes. Those of one node are in order.
    pub deaths: Vec<Death>,
    /// Pairs of nodes that are disconnected for longer than the limit, and since when.
    pub disconnected: Vec<(u32, u32, u64)>,
    /// The pairs among them that only a stall disconnects: the stalled node, and the one that gives up.
    pub stalled_pairs: BTreeSet<(u32, u32)>,
    /// Rails that are disabled and enabled.
    pub toggles: Vec<Toggle>,
    /// The stall time-out of all engines, in nanoseconds.
    pub stall_timeout: Option<u64>,
    /// When all faults end. The remaining work must then complete soon.
    pub faults_end_at: Option<u64>,
    /// Sends are cancelled and then begun again.
    pub cancels_sends: bool,
    /// The programs.
    pub plan: Plan,
    /// One-sided operations in addition to messages.
    pub windows: Option<Windows>,
    /// Most virtual nanoseconds between two rounds in which something happened.
    pub pace: u64,
    /// For all further random choices.
    pub random: Random,
}
