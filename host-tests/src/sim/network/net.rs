//! The network that simulated rails share.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::devices::Devices;
use super::endpoint::{End, Path};
use super::faults::{Counts, FOR_EVER, Faults, Outage, RailParams, Window};
use super::state::State;
use crate::random::Random;

/// Some nodes, each with one rail of every params, all reaching each other and themselves.
#[derive(Clone)]
pub struct Net(pub(super) Rc<RefCell<State>>);

impl Net {
    /// A network of `nodes` nodes with one rail of each params.
    pub fn new(nodes: u32, rail_params: Vec<RailParams>, faults: Faults, random: Random) -> Self {
        let ends = nodes as usize * rail_params.len();
        let end = || End::unknown(nodes as usize, vec![0; nodes as usize]);
        Self(Rc::new(RefCell::new(State {
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

    /// How often each thing happened so far.
    pub fn counts(&self) -> Counts {
        self.0.borrow().counts
    }

    /// Moves the clock on; it never goes back.
    pub fn advance(&self, now: u64) {
        self.0.borrow_mut().advance(now);
    }

    /// The next nanosecond at which something arrives or is reported, if nobody sends any more.
    pub fn next_at(&self) -> Option<u64> {
        let state = self.0.borrow();
        let keep = |at: usize| state.rail_params[at % state.rail_params.len()].frames_kept;
        state.ends.iter().enumerate().filter_map(|(at, end)| end.next_at(keep(at))).min()
    }

    /// When a node that sleeps is to be called.
    pub fn wakes_at(&self, node: u32) -> u64 {
        self.0.borrow().wakes_at[node as usize]
    }

    /// A node sleeps until then, if nothing comes earlier.
    pub fn set_wakes_at(&self, node: u32, at: u64) {
        self.0.borrow_mut().wakes_at[node as usize] = at;
    }

    /// Frames that are under way or held.
    pub fn under_way(&self) -> usize {
        let state = self.0.borrow();
        state.packets.len() - state.free.len()
    }

    /// Prints a line about a node, where a trace is wanted.
    pub fn trace(&self, node: u32, what: impl FnOnce() -> String) {
        let state = self.0.borrow();
        if state.trace {
            println!("{:>9} node {node}: {}", state.now, what());
        }
    }

    /// Ends all faults, but for rails that are dead for ever, to see that what is left comes to an end.
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

    /// When faults that go by the clock begin and end, the next one last.
    pub fn fault_boundaries(&self) -> Vec<u64> {
        let state = self.0.borrow();
        let faults = &state.faults;
        let windows = faults.partitions.iter().map(|partition| partition.window);
        let windows = windows.chain(faults.rail_stalls.iter().map(|stall| stall.2));
        let windows = windows.chain(faults.outages.iter().map(|outage| outage.window));
        let windows = windows.chain(faults.lossy_rail.iter().map(|half| half.1));
        let windows = windows.chain(faults.node_stalls.iter().map(|rest| rest.1));
        let mut all: Vec<u64> = windows.flat_map(|window| [window.0, window.1]).collect();
        all.sort_by(|one, other| other.cmp(one));
        all
    }

    /// A node dies, perhaps with its host. To be called before its memory goes; its rails must not be used any more.
    pub fn kill(&self, node: u32, with_host: bool) {
        let mut state = self.0.borrow_mut();
        state.hosts_lost[node as usize] = with_host;
        state.given_up.retain(|(one, other)| *one != node && *other != node);
        state.counts.hosts_lost += u64::from(with_host && state.faults.hosts_answer);
        state.kill(node);
    }

    /// Whether hosts answer.
    pub fn hosts_answer(&self) -> bool {
        self.0.borrow().faults.hosts_answer
    }

    /// Until when a node stands still.
    pub fn stalled_until(&self, node: u32) -> Option<u64> {
        let state = self.0.borrow();
        let now = |window: &Window| (window.0..window.1).contains(&state.now);
        state.faults.node_stalls.iter().filter(|rest| rest.0 == node && now(&rest.1)).map(|rest| rest.1.1).max()
    }

    /// Whether a node has stood still since that time.
    pub fn stalled_since(&self, node: u32, since: u64) -> bool {
        let state = self.0.borrow();
        let then = |window: &Window| window.1 > since && window.0 <= state.now;
        state.faults.node_stalls.iter().any(|rest| rest.0 == node && then(&rest.1))
    }

    /// Says whether a node has given another one up. Its rails refuse then what still comes from there, where hosts answer: a
    /// link that missed the last word would be excused for ever.
    pub fn set_given_up(&self, node: u32, peer: u32, given_up: bool) {
        let mut state = self.0.borrow_mut();
        if given_up {
            state.given_up.insert((node, peer))
        } else {
            state.given_up.remove(&(node, peer))
        };
    }

    /// Whether no rail leads from one node to another.
    pub fn are_unreachable(&self, one: u32, other: u32) -> bool {
        let state = self.0.borrow();
        (0..state.rail_params.len() as u32).all(|rail| state.is_rail_missing(one, other, rail))
    }

    /// Counts what happens to nodes.
    pub fn count(&self, add: impl FnOnce(&mut Counts)) {
        add(&mut self.0.borrow_mut().counts);
    }

    /// Memory that living nodes have registered and not taken back.
    pub fn registered(&self) -> u64 {
        self.0.borrow().devices.registered()
    }

    /// Requests that living nodes have prepared and not undone.
    pub fn prepared(&self) -> u64 {
        self.0.borrow().prepared.iter().sum()
    }
}
