//! Generates random programs that are correct: whatever the timing, every send and receive must complete, with as many
//! requests for each node as the window of the plan, and without any buffering.
//!
//! A plan is a sequence of blocks. Within a block the steps of a node are in any order. A node never has more sends and
//! receives of a block than its window, and begins all steps of a block before those of the next one. So in the first
//! block that is not complete, all sends and receives get posted, and they match. Which receives match which messages:
//! - On a communicator with named sources a receive names its source, and perhaps not the tag. MPI order alone decides.
//! - On a communicator with grouped tags a tag belongs to one block, and receives from any source are posted after
//!   those that name their source.
//! - A communicator with wildcards exists for one block, in which more specific receives are posted earlier.

use std::collections::{BTreeMap, BTreeSet};

use super::program::{Cancel, Comm, Plan, Shape, Step, Style};
use crate::random::Random;
use crate::sim::history::{Message, Mode, RESERVED, Receive};

impl Plan {
    /// A random plan.
    pub fn new(shape: Shape, random: &mut Random) -> Self {
        let mut plan = Self { programs: vec![vec![]; shape.nodes as usize], permanent: shape.comms, ..Self::default() };
        for _ in 0..shape.comms {
            let style = random.pick(&[Style::NamedSources, Style::GroupedTags]);
            plan.comm(style, shape.nodes, random);
        }
        let mut blocks = 0;
        while plan.messages.len() < shape.messages {
            blocks += 1;
            Block::new(&mut plan, shape, blocks, random.fork()).plan();
        }
        plan
    }

    fn comm(&mut self, style: Style, nodes: u32, random: &mut Random) -> u32 {
        let table = random.chance(500).then(|| {
            let mut table: Vec<u32> = (0..nodes).collect();
            random.shuffle(&mut table);
            table
        });
        let number = self.comms.len() as u32;
        self.comms.push(Comm { context: number * 3 + 1, table, style });
        number
    }
}

/// The arrangement of the steps of a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Arrangement {
    Mixed,
    /// All messages are expected.
    ReceivesFirst,
    /// All messages are unexpected.
    SendsFirst,
    /// The last message is received first.
    Reverse,
}

/// Receives that must be posted in this order. Those from index `probed` on use probes.
struct ReceiveChain {
    receives: Vec<u32>,
    probed: usize,
    /// Its first message.
    first: u32,
    alone: bool,
}

struct Block<'p> {
    plan: &'p mut Plan,
    shape: Shape,
    number: u32,
    random: Random,
    arrangement: Arrangement,
    wild: Option<u32>,
    load: Vec<u32>,
    /// Sends of each node, in program order: ordinary ones, and ready sends.
    sends: Vec<[Vec<u32>; 2]>,
    chains: Vec<Vec<ReceiveChain>>,
    /// Receives that must be posted before a ready send begins.
    after: BTreeMap<u32, Vec<u32>>,
    /// All receives of ready sends. They must not be cancelled.
    guarded: BTreeSet<u32>,
}

impl<'p> Block<'p> {
    fn new(plan: &'p mut Plan, shape: Shape, number: u32, mut random: Random) -> Self {
        let arrangements =
            [Arrangement::Mixed, Arrangement::ReceivesFirst, Arrangement::SendsFirst, Arrangement::Reverse];
        let arrangement = random.pick(&arrangements);
        let wild = (random.chance(250) && shape.wild).then(|| plan.comm(Style::Wildcards, shape.nodes, &mut random));
        let nodes = shape.nodes as usize;
        Self {
            plan,
            shape,
            number,
            random,
            arrangement,
            wild,
            load: vec![0; nodes],
            sends: vec![Default::default(); nodes],
            chains: (0..nodes).map(|_| vec![]).collect(),
            after: BTreeMap::new(),
            guarded: BTreeSet::new(),
        }
    }

    fn plan(mut self) {
        let first = self.plan.messages.len();
        self.choose_messages();
        for sends in &mut self.sends {
            self.random.shuffle(&mut sends[0]);
        }
        self.choose_receives(first);
        self.guarded = self.after.values().flatten().copied().collect();
        for node in 0..self.shape.nodes {
            self.write(node);
        }
    }

    fn choose_messages(&mut self) {
        let nodes = u64::from(self.shape.nodes);
        let goal = self.random.between(1, (u64::from(self.shape.window) * nodes / 2).clamp(1, 60));
        // In some blocks one node floods another.
        let flood = self.random.chance(300).then(|| [self.random.below(nodes), self.random.below(nodes)]);
        let one_size = self.random.chance(200).then(|| self.random.length(self.shape.longest));
        for _ in 0..goal * 2 {
            let [from, to] = match flood {
                Some(flood) if self.random.chance(800) => flood,
                _ => [self.random.below(nodes), self.random.below(nodes)],
            };
            let (from, to) = (from as u32, to as u32);
            let own = u32::from(from == to);
            if self.load[from as usize] + 1 + own > self.shape.window || self.load[to as usize] + 1 > self.shape.window
            {
                continue;
            }
            self.load[from as usize] += 1;
            self.load[to as usize] += 1;
            let comm = match self.wild {
                Some(wild) if self.random.chance(600) => wild,
                _ => self.random.below(self.shape.comms.into()) as u32,
            };
            let mode = match self.random.below(10) {
                0 | 1 => Mode::Synchronous,
                2 => Mode::Ready,
                3 => Mode::Buffered,
                4 => Mode::Complete,
                _ => Mode::Standard,
            };
            let index = self.plan.messages.len() as u32;
            let tag = self.tag(comm, index);
            let len = one_size.unwrap_or_else(|| self.random.length(self.shape.longest));
            self.sends[from as usize][usize::from(mode == Mode::Ready)].push(index);
            self.plan.messages.push(Message { from, to, comm, tag, len, mode });
        }
    }

    fn tag(&mut self, comm: u32, message: u32) -> u32 {
        match self.plan.comms[comm as usize].style {
            Style::NamedSources => match self.random.below(12) {
                0 => RESERVED,
                1 => u32::MAX - 1,
                2 => RESERVED - 1,
                other => other as u32 % 3,
            },
            Style::GroupedTags if self.arrangement == Arrangement::Reverse => message + 1000,
            Style::GroupedTags => 10_000_000 + self.number * 4 + self.random.below(3) as u32,
            Style::Wildcards => self.random.below(4) as u32,
        }
    }

    /// Groups the messages since `first` by the key that decides which receives may match them, each in the order of
    /// its sender's program.
    fn choose_receives(&mut self, first: usize) {
        let mut groups: BTreeMap<(u32, u32, u32), Vec<u32>> = BTreeMap::new();
        let in_order: Vec<u32> = self.sends.iter().flat_map(|sends| sends.iter().flatten().copied()).collect();
        debug_assert_eq!(in_order.len(), self.plan.messages.len() - first);
        for index in in_order {
            let message = self.plan.messages[index as usize];
            let key = match self.plan.comms[message.comm as usize].style {
                Style::NamedSources => message.from,
                Style::GroupedTags => message.tag,
                Style::Wildcards => 0,
            };
            groups.entry((message.to, message.comm, key)).or_default().push(index);
        }
        for ((to, comm, _), group) in groups {
            match self.plan.comms[comm as usize].style {
                Style::NamedSources => self.exact(to, group),
                Style::GroupedTags | Style::Wildcards => self.tiers(to, group),
            }
        }
    }

    /// Makes receives for messages of one sender, in order. This decides which receive gets which message.
    fn exact(&mut self, to: u32, mut left: Vec<u32>) {
        let mut chain = ReceiveChain { receives: vec![], probed: 0, first: left[0], alone: left.len() == 1 };
        while !left.is_empty() {
            let aim = self.plan.messages[self.random.pick(&left) as usize];
            let any = aim.tag < RESERVED && self.random.chance(300);
            let fits = |tag: u32| if any { tag < RESERVED } else { tag == aim.tag };
            let at = left
                .iter()
                .position(|index| fits(self.plan.messages[*index as usize].tag))
                .expect("the message that was aimed at fits");
            let index = left.remove(at);
            let message = self.plan.messages[index as usize];
            let tag = (!any).then_some(message.tag);
            let receive = self.receive(to, message.comm, Some(message.from), tag, message.len);
            chain.receives.push(receive);
            if message.mode == Mode::Ready {
                self.after.insert(index, vec![receive]);
                chain.probed = chain.receives.len();
            }
        }
        self.finish(to, chain);
    }

    /// Makes receives for messages of several senders. Less specific receives are posted later.
    fn tiers(&mut self, to: u32, group: Vec<u32>) {
        let messages: Vec<Message> = group.iter().map(|index| self.plan.messages[*index as usize]).collect();
        let wild = self.plan.comms[messages[0].comm as usize].style == Style::Wildcards;
        let longest = messages.iter().map(|message| message.len).max().unwrap_or(0);
        let named = self.random.pick(&[0, 300, 1000]);
        let mut tiers: [Vec<u32>; 3] = Default::default();
        for message in &messages {
            let tier = if self.random.chance(named) {
                0
            } else if wild && self.random.chance(500) {
                1
            } else {
                2
            };
            let source = (tier < 2).then_some(message.from);
            let tag = (tier == 0 || !wild).then_some(message.tag);
            let len = if tier == 0 && messages.len() == 1 { message.len } else { longest };
            let receive = self.receive(to, message.comm, source, tag, len);
            tiers[tier].push(receive);
        }
        for tier in &mut tiers {
            self.random.shuffle(tier);
        }
        let receives = tiers.concat();
        let ready: Vec<u32> = group.iter().copied().filter(|index| self.is_ready(*index)).collect();
        let probed = if ready.is_empty() { 0 } else { receives.len() };
        for index in ready {
            self.after.insert(index, receives.clone());
        }
        let alone = receives.len() == 1 && !wild;
        self.finish(to, ReceiveChain { receives, probed, first: group[0], alone });
    }

    fn is_ready(&self, message: u32) -> bool {
        self.plan.messages[message as usize].mode == Mode::Ready
    }

    fn receive(&mut self, at: u32, comm: u32, source: Option<u32>, tag: Option<u32>, len: u64) -> u32 {
        let buffer = if len > 0 && self.random.chance(100) {
            self.random.below(len)
        } else {
            len + self.random.pick(&[0, 0, 1, 90])
        };
        self.plan.receives.push(Receive { at, comm, source, tag, buffer });
        self.plan.receives.len() as u32 - 1
    }

    /// Turns some of the receives at the end of a chain into probes.
    fn finish(&mut self, to: u32, mut chain: ReceiveChain) {
        let may = (chain.receives.len() - chain.probed) as u64;
        let probes = if self.random.chance(300) { self.random.below(may + 1) } else { 0 };
        chain.probed = chain.receives.len() - probes as usize;
        self.chains[to as usize].push(chain);
    }

    /// Writes the steps of one node for this block.
    fn write(&mut self, node: u32) {
        let mut steps = vec![];
        let mut chains = std::mem::take(&mut self.chains[node as usize]);
        self.random.shuffle(&mut chains);
        if self.arrangement == Arrangement::Reverse {
            chains.sort_by_key(|chain| std::cmp::Reverse(chain.first));
        }
        let [plain, ready] = std::mem::take(&mut self.sends[node as usize]);
        let sends: Vec<Step> = plain.into_iter().map(|index| Step::Send(index, vec![])).collect();
        let mut posted: Vec<Vec<Step>> = vec![];
        let mut probed: Vec<Vec<Step>> = vec![];
        for chain in &chains {
            let ready = chain.receives.iter().any(|receive| self.guarded.contains(receive));
            let alone = chain.alone && self.exclusive(chain);
            let (post, probe) = chain.receives.split_at(chain.probed);
            let random = &mut self.random;
            let mut cancel = || match random.below(20) {
                0 if !ready => Cancel::Now,
                1..4 if !ready && alone => Cancel::Later,
                _ => Cancel::Never,
            };
            posted.push(post.iter().map(|receive| Step::Recv(*receive, cancel())).collect());
            let take = self.random.chance(500);
            let probe =
                probe.iter().map(|receive| if take { Step::MatchedProbe(*receive) } else { Step::Probe(*receive) });
            probed.push(probe.collect());
        }
        let in_turn = self.arrangement == Arrangement::Reverse;
        let posted = if in_turn { posted.concat() } else { interleave(posted, &mut self.random) };
        let first = match self.arrangement {
            Arrangement::ReceivesFirst => [posted, sends].concat(),
            Arrangement::SendsFirst | Arrangement::Reverse => {
                let away = Step::Compute(self.random.length(100_000));
                [sends, vec![away], posted].concat()
            }
            Arrangement::Mixed => interleave(vec![posted, sends], &mut self.random),
        };
        steps.extend(first);
        self.insert_extra_steps(node, &mut steps);
        steps.extend(ready.into_iter().map(|index| Step::Send(index, self.after.remove(&index).unwrap_or_default())));
        steps.extend(interleave(probed, &mut self.random));
        if let Some(wild) = self.wild {
            let at = if self.random.chance(500) { 0 } else { self.first_use(&steps, wild) };
            steps.insert(at, Step::CreateComm(wild));
            steps.push(Step::DeleteComm(wild));
        }
        self.plan.programs[node as usize].append(&mut steps);
    }

    /// Whether a receive may be posted again later, since no other receive could get its message meanwhile.
    fn exclusive(&self, chain: &ReceiveChain) -> bool {
        let receive = self.plan.receives[chain.receives[0] as usize];
        self.plan.comms[receive.comm as usize].style == Style::GroupedTags
    }

    fn first_use(&self, steps: &[Step], comm: u32) -> usize {
        let uses = |step: &Step| match step {
            Step::Send(index, _) => self.plan.messages[*index as usize].comm == comm,
            Step::Recv(index, _) | Step::Probe(index) | Step::MatchedProbe(index) => {
                self.plan.receives[*index as usize].comm == comm
            }
            Step::CancelledRecv(other) | Step::ProbeOnce(other) => *other == comm,
            Step::Compute(_) | Step::CreateComm(_) | Step::DeleteComm(_) => false,
        };
        steps.iter().position(uses).unwrap_or(steps.len())
    }

    /// Inserts steps that have no effect on messages.
    fn insert_extra_steps(&mut self, node: u32, steps: &mut Vec<Step>) {
        let comms = u64::from(self.shape.comms);
        let mut extra = vec![];
        if self.load[node as usize] < self.shape.window && self.random.chance(300) {
            extra.push(Step::CancelledRecv(self.random.below(comms) as u32));
        }
        if self.random.chance(300) {
            extra.push(Step::ProbeOnce(self.random.below(comms) as u32));
        }
        if self.random.chance(200) {
            extra.push(Step::Compute(self.random.length(200_000)));
        }
        for step in extra {
            let at = self.random.below(steps.len() as u64 + 1) as usize;
            steps.insert(at, step);
        }
    }
}

/// Merges lists in random order. Each list keeps its own order.
fn interleave(mut lists: Vec<Vec<Step>>, random: &mut Random) -> Vec<Step> {
    let mut merged = vec![];
    for list in &mut lists {
        list.reverse();
    }
    lists.retain(|list| !list.is_empty());
    while !lists.is_empty() {
        let at = random.below(lists.len() as u64) as usize;
        merged.extend(lists[at].pop());
        if lists[at].is_empty() {
            lists.swap_remove(at);
        }
    }
    merged
}
