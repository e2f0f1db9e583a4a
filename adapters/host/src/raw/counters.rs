//! The counters of a context by name, for foreign code and for tools.

use towline_core::counts::Count;
use towline_core::pml::Rails as _;

use crate::operations::communicator::Communicator;
use crate::threads::levels::Threads;
use crate::threads::lock::EngineLock;
use crate::transports::rails::AnyRail;

/// A counter: see [`counters_raw`](Communicator::counters_raw).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Counter {
    /// The part that counts, and what it counts, such as `engine.eager_sent` or `tcp.0.reads`.
    pub name: String,
    /// What is counted, in words.
    pub help: &'static str,
    /// The number so far.
    pub value: u64,
}

impl<L: Threads> Communicator<L> {
    /// All counters of this context: those of the engine, of its one-sided operations, and of each transport. The list has the same
    /// names in the same order as long as the context exists. Of several transports of one kind, each has its number in the name.
    /// A later version may have further counters, and lack some.
    ///
    /// ```
    /// let world = towline::init()?;
    /// world.send(0, 1, b"x")?;
    /// let counters = world.counters_raw();
    /// let sent = counters.iter().find(|counter| counter.name == "engine.eager_sent").unwrap();
    /// assert_eq!((sent.value, sent.help), (1, "Whole messages sent in one frame."));
    /// # world.recv(0, 1, &mut [0u8])?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn counters_raw(&self) -> Vec<Counter> {
        let context = &self.handle.context;
        let mut engine = context.engine.lock();
        let mut all = Vec::new();
        add(&mut all, "engine", &engine.mtl.counters().list());
        add(&mut all, "one_sided", &engine.mtl.pml().rma_counters().list());
        let rails = engine.mtl.rails();
        for (index, name) in context.rail_names.iter().enumerate() {
            let Some(rail) = rails.rail(index) else { break };
            match rail {
                AnyRail::Tcp(rail) => add(&mut all, name, &rail.counters().list()),
                AnyRail::LinkedTcp(rail) => {
                    add(&mut all, name, &rail.raw().counters().list());
                    add(&mut all, &format!("{name}.link"), &rail.counters().list());
                }
                AnyRail::Udp(rail) => {
                    add(&mut all, name, &rail.raw().counters().list());
                    add(&mut all, &format!("{name}.link"), &rail.counters().list());
                }
                AnyRail::Verbs(rail) => add(&mut all, name, &rail.counters().list()),
                AnyRail::LinkedVerbs(rail) => {
                    add(&mut all, name, &rail.raw().counters().list());
                    add(&mut all, &format!("{name}.link"), &rail.counters().list());
                }
                AnyRail::LinkedDpu(rail) => add(&mut all, &format!("{name}.link"), &rail.counters().list()),
                AnyRail::Dpu(_) => {}
                // No context has a bundle.
                AnyRail::Loopback(_) | AnyRail::Sm(_) | AnyRail::Bundled(_) | AnyRail::Dyn(_) => {}
            }
        }
        all
    }
}

fn add(all: &mut Vec<Counter>, part: &str, counts: &[Count]) {
    let counter = |count: &Count| Counter {
        name: format!("{part}.{}", count.name),
        help: count.help.trim_start(),
        value: count.value,
    };
    all.extend(counts.iter().map(counter));
}
