//! What a job runs with.

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
    /// Which.
    pub node: u32,
    /// After how many of the steps of its own, calls of its engine among them, in its present incarnation.
    pub calls: u64,
    /// How many nanoseconds later it comes back, if it does.
    pub back_after: Option<u64>,
    /// Its host is gone with it.
    pub with_host: bool,
}

/// A rail that a node disables for a while.
#[derive(Clone, Copy, Debug)]
pub struct Toggle {
    /// Whose.
    pub node: u32,
    /// Which.
    pub rail: u32,
    /// After how many of the node's steps, as of a [`Death`].
    pub calls: u64,
    /// For so many nanoseconds.
    pub span: u64,
}

/// What a job runs with.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The engines; `peers` is the number of nodes. The seed and the first sequence are made each node's own.
    pub config: Config,
    /// The rails of each node.
    pub rail_params: Vec<RailParams>,
    /// Rails are links over those; else as they are.
    pub links: Option<LinkParams>,
    /// What goes wrong.
    pub faults: Faults,
    /// Which nodes die; of each node, in the order given.
    pub deaths: Vec<Death>,
    /// Pairs of nodes that are cut off from each other for longer than they put up with: since when.
    pub disconnected: Vec<(u32, u32, u64)>,
    /// Those of them that only a rest comes between: who stands still, and who gives up.
    pub stalled_pairs: BTreeSet<(u32, u32)>,
    /// Rails that are disabled and enabled.
    pub toggles: Vec<Toggle>,
    /// The stall time-out of all engines, in nanoseconds.
    pub stall_timeout: Option<u64>,
    /// When all faults stop: what is left to do must come to an end soon.
    pub faults_end_at: Option<u64>,
    /// The programs.
    pub plan: Plan,
    /// What nodes do to each other's memory beside.
    pub windows: Option<Windows>,
    /// Virtual nanoseconds between two rounds in which something happened, at most.
    pub pace: u64,
    /// For all further choices.
    pub random: Random,
}
