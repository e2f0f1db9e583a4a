//! The network that simulated rails share.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::devices::Devices;
use super::endpoint::{End, Path};
use super::faults::{Counts, FOR_EVER, Faults, Outage, RailParams, Window};
use super::state::NetworkState;
use crate::random::Random;

/// A network of nodes. Each node has one rail for each set of parameters, and reaches every node, including itself.
#[derive(Clone)]
pub struct Net(pub(super) Rc<RefCell<NetworkState>>);

impl Net {
    /// A network of `nodes` nodes, with one rail for each set of parameters.
    pub fn new(nodes: u32, rail_params: Vec<RailParams>, faults: Faults, random: Random) -> Self {
        let ends = nodes as usize * rail_params.len();
        let end = || End::unknown(nodes as usize, vec![0; nodes as usize]);
        Self(Rc::new(RefCell::new(NetworkState {
            now: 0,
            random,
            incarnations: vec![Ok(0); nodes as usize],
            prepared: vec![0; nodes as usize],
            stale_packets: vec![],
            held_for_swap: None,
            upcoming_outages: faults.outages.clone(),
            faults,
            counts: Counts::default(),
            ends: (0..ends).map(|_| end()).collect(),
            paths: vec![Path::default(); ends * nodes as usize],
            rail_params,
            packets: vec![],
            free: vec![],
            nodes,
            ids: 0,
            exposed_buffers: vec![],
            devices: Devices::default(),
            hosts_lost: vec![false; nodes as usize],
            given_up: HashSet::new(),
            known_incarnations: HashMap::new(),
            wakes_at: vec![0; nodes as usize],
            trace: std::env::var_os("TOWLINE_TRACE").is_some(),
        })))
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        self.0.borrow().counts
    }

    /// Advances the clock, which never goes back.
    pub fn advance(&self, now: u64) {
        self.0.borrow_mut().advance(now);
    }

    /// The next nanosecond at which something arrives or is reported, if nothing more is sent.
    pub fn next_at(&self) -> Option<u64> {
        let state = self.0.borrow();
        let keep = |at: usize| state.rail_params[at % state.rail_params.len()].frames_kept;
        state.ends.iter().enumerate().filter_map(|(at, end)| end.next_at(keep(at))).min()
    }

    /// When a sleeping node must be called.
    pub fn wakes_at(&self, node: u32) -> u64 {
        self.0.borrow().wakes_at[node as usize]
    }

    /// Lets a node sleep until then, or until something arrives.
    pub fn set_wakes_at(&self, node: u32, at: u64) {
        self.0.borrow_mut().wakes_at[node as usize] = at;
    }

    /// Number of frames that are in flight or held.
    pub fn unreleased_frames(&self) -> usize {
        let state = self.0.borrow();
        state.packets.len() - state.free.len()
    }

    /// Prints a line about a node, if a trace is wanted.
    pub fn trace(&self, node: u32, what: impl FnOnce() -> String) {
        let state = self.0.borrow();
        if state.trace {
            println!("{:>9} node {node}: {}", state.now, what());
        }
    }

    /// Ends all faults except outages without end, so that a test can check that the remaining work completes.
    pub fn end_faults(&self) {
        let mut state = self.0.borrow_mut();
        let for_ever = |outage: &Outage| outage.window.1 == FOR_EVER;
        let now = state.now;
        let outages = state.faults.outages.iter().copied().filter(|outage| for_ever(outage) && outage.window.0 <= now);
        let outages = outages.collect();
        let Faults { hosts_answer, planted, .. } = state.faults;
        let missing = std::mem::take(&mut state.faults.missing);
        let planted = planted.filter(|bug| !bug.is_of_rails());
        state.faults = Faults { outages, hosts_answer, missing, planted, ..Faults::default() };
        state.upcoming_outages.clear();
    }

    /// The times at which timed faults begin and end, in falling order.
    pub fn fault_boundaries(&self) -> Vec<u64> {
        let state = self.0.borrow();
        let faults = &state.faults;
        let windows = faults.partitions.iter().map(|partition| partition.window);
        let windows = windows.chain(faults.rail_stalls.iter().map(|stall| stall.2));
        let windows = windows.chain(faults.outages.iter().map(|outage| outage.window));
        let windows = windows.chain(faults.lossy_rail.iter().map(|lossy_rail| lossy_rail.1));
        let windows = windows.chain(faults.node_stalls.iter().map(|stall| stall.1));
        let mut all: Vec<u64> = windows.flat_map(|window| [window.0, window.1]).collect();
        all.sort_by(|one, other| other.cmp(one));
        all
    }

    /// Kills a node, perhaps with its host. Must be called before its memory is freed. Its rails must not be used any
    /// more.
    pub fn kill(&self, node: u32, with_host: bool) {
        let mut state = self.0.borrow_mut();
        state.hosts_lost[node as usize] = with_host;
        state.given_up.retain(|(one, other)| *one != node && *other != node);
        state.counts.hosts_lost += u64::from(with_host && state.faults.hosts_answer);
        state.kill(node);
    }

    /// Whether hosts answer for their processes.
    pub fn hosts_answer(&self) -> bool {
        self.0.borrow().faults.hosts_answer
    }

    /// Until when a node is stalled, if it is.
    pub fn stalled_until(&self, node: u32) -> Option<u64> {
        let state = self.0.borrow();
        let now = |window: &Window| (window.0..window.1).contains(&state.now);
        state.faults.node_stalls.iter().filter(|stall| stall.0 == node && now(&stall.1)).map(|stall| stall.1.1).max()
    }

    /// Whether a node was stalled at any time since `since`.
    pub fn stalled_since(&self, node: u32, since: u64) -> bool {
        let state = self.0.borrow();
        let then = |window: &Window| window.1 > since && window.0 <= state.now;
        state.faults.node_stalls.iter().any(|stall| stall.0 == node && then(&stall.1))
    }

    /// Sets whether a node has given another one up. If hosts answer, its rails then refuse frames from that node:
    /// otherwise a link that missed the goodbye would be excused forever.
    pub fn set_given_up(&self, node: u32, peer: u32, given_up: bool) {
        let mut state = self.0.borrow_mut();
        if given_up {
            state.given_up.insert((node, peer))
        } else {
            state.given_up.remove(&(node, peer))
        };
    }

    /// Whether two nodes have no common rail.
    pub fn are_unreachable(&self, one: u32, other: u32) -> bool {
        let state = self.0.borrow();
        (0..state.rail_params.len() as u32).all(|rail| state.is_rail_missing(one, other, rail))
    }

    /// Changes the counts.
    pub fn count(&self, add: impl FnOnce(&mut Counts)) {
        add(&mut self.0.borrow_mut().counts);
    }

    /// Number of registrations of live nodes.
    pub fn registered(&self) -> u64 {
        self.0.borrow().devices.registered()
    }

    /// Number of requests that live nodes have prepared and not released.
    pub fn prepared(&self) -> u64 {
        self.0.borrow().prepared.iter().sum()
    }
}
