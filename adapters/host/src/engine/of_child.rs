//! The engine of a forked child, in place of its parent's. It has no rails and no communicators, so it refuses all operations.

use towline_core::mtl::Mtl;
use towline_core::pml;

use crate::engine::Engine;
use crate::engine::loopback_hub::LoopbackHub;
use crate::settings::config::Config;
use crate::transports::memory::Mapping;
use crate::transports::rails::RailSet;
use crate::waiting::idle::IdlePolicy;
use crate::waiting::wait_set::WaitSet;

/// Bytes of a frame of its loopback hub, which carries none.
const FRAME: u32 = 64;

impl Engine {
    /// The engine of a child that was forked.
    ///
    /// # Panics
    /// If there is no memory for it: a few pages.
    #[cold]
    pub fn of_child() -> Self {
        let limits = pml::Config::SMALLEST;
        let bytes = Mtl::<RailSet>::bytes(&limits, 1, &[]).saturating_add(LoopbackHub::bytes(FRAME) + 64);
        let memory = Mapping::new(bytes).expect("memory for the engine of a forked child");
        // SAFETY: called once. Everything that is cut from the arena goes into the engine, whose fields are dropped in the order
        // that this needs.
        let mut arena = unsafe { memory.arena() };
        let hub = LoopbackHub::new(&mut arena, FRAME).expect("the mapping has room for it");
        let mtl = Mtl::new(limits, 1, &mut arena, RailSet::new(Vec::new(), 0, None)).expect("the limits suffice");
        let idle_policy = IdlePolicy::new(&Config::default(), 1);
        Self { is_of_child: true, ..Self::new(mtl, idle_policy, WaitSet::Timer, hub, memory) }
    }
}
