//! Components: a component finds the devices of one transport, and makes rails of them.
//!
//! [`start`] opens and initialises a list of components. A component that fails is dropped; its reason is kept, and the other
//! components go on. `start` publishes the cards of the rails by modex before it returns. The cards of the peers are available
//! when peers are added, not earlier.

use core::fmt;

use super::traits::FullRail;
use crate::modex::{self, Instances, Modex};

/// Which threads a component may run, and which may call it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Threads {
    /// The component may run a thread of its own. That thread must not poll.
    pub progress: bool,
    /// Several threads may call the component at the same time.
    pub mpi: bool,
}

/// Finds the devices of one transport, and makes rails of them. `R` is the process's type of rail, often an enum of several.
pub trait Component<R: FullRail> {
    /// The name under which its cards are published. It matches components of peers with the same name.
    fn identity(&self) -> modex::Component<'static>;

    /// Reads its settings, and checks that everything that it needs is present.
    ///
    /// # Errors
    /// [`Refusal`]: the component is dropped then, and none of its methods is called any more.
    fn open(&mut self) -> Result<(), Refusal>;

    /// Makes rails and passes each to `accept`: none if there is no device, one that schedules over several devices by itself,
    /// or (better) one per device. It does not contact peers. Their cards may not be available yet: a request to `modex` for
    /// one does not block.
    ///
    /// # Errors
    /// [`Refusal`], also if `accept` returns `false` because there is no room. The caller then closes the component.
    fn init(
        &mut self,
        threads: Threads,
        modex: &mut dyn Modex,
        accept: &mut dyn FnMut(R) -> bool,
    ) -> Result<(), Refusal>;

    /// Frees everything that `open` and `init` have allocated. The caller has dropped its rails before; but if `init` has
    /// failed, rails that were accepted before the failure may still exist.
    fn close(&mut self);
}

/// Why a component cannot run here. The process keeps the reason, and shows it on request.
#[derive(Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Refusal {
    /// Something that the component needs is missing; the text names it.
    Missing(&'static str),
    /// A setting has a value that the component cannot use; the text names the setting.
    BadSetting(&'static str),
    /// The component cannot work with these [`Threads`].
    Threads,
    /// The component has more rails than there is room for.
    NoRoom,
    /// The component's cards could not be published.
    Unpublished(modex::SendError),
    /// The component's cards do not fit the space for them, or differ in length.
    Cards(modex::InstancesError),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(what) => write!(f, "{what} is missing"),
            Self::BadSetting(which) => write!(f, "the value of {which} is not usable: change the setting"),
            Self::Threads => {
                f.write_str("the component cannot work with these threads: run it with other thread settings")
            }
            Self::NoRoom => f.write_str("the component has more rails than there is room for: accept more rails"),
            Self::Unpublished(error) => write!(f, "the component's cards could not be published: {error}"),
            Self::Cards(error) => write!(f, "the component's cards could not be framed: {error}"),
        }
    }
}

impl core::error::Error for Refusal {}

crate::debug_as_display!(Refusal);

/// The result of the start of a component.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Started {
    /// The component works, with this many rails; 0: it found no device.
    Rails(u32),
    /// The component was dropped, for this reason.
    Dropped(Refusal),
}

impl fmt::Display for Started {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rails(0) => f.write_str("no device"),
            Self::Rails(count) => write!(f, "rails: {count}"),
            Self::Dropped(reason) => write!(f, "dropped: {reason}"),
        }
    }
}

/// Opens and initialises components, and publishes the cards of their rails, one instance per rail. The result of each component
/// goes to the same index in `outcomes`; a component without an entry there is not started.
///
/// `accept` takes the rails; `false` means that there is no room, and that it has dropped the rail. `scratch` needs twice as
/// many bytes as the cards of any one component and [`Instances::HEADER`] together.
///
/// If a component fails after some of its rails were accepted, those rails stay, but their cards are not published. So no peer
/// reaches them.
pub fn start<R: FullRail>(
    components: &mut [&mut dyn Component<R>],
    outcomes: &mut [Started],
    threads: Threads,
    modex: &mut dyn Modex,
    scratch: &mut [u8],
    accept: &mut dyn FnMut(R) -> bool,
) {
    for (component, outcome) in components.iter_mut().zip(outcomes) {
        *outcome = match component.open() {
            Err(reason) => Started::Dropped(reason),
            Ok(()) => match init(*component, threads, modex, scratch, accept) {
                Ok(count) => Started::Rails(count),
                Err(reason) => {
                    component.close();
                    Started::Dropped(reason)
                }
            },
        };
    }
}

fn init<R: FullRail>(
    component: &mut dyn Component<R>,
    threads: Threads,
    modex: &mut dyn Modex,
    scratch: &mut [u8],
    accept: &mut dyn FnMut(R) -> bool,
) -> Result<u32, Refusal> {
    let (cards, framed) = scratch.split_at_mut_checked(scratch.len() / 2).unwrap_or_default();
    let (mut used, mut size, mut count) = (0usize, None, 0u32);
    let mut wrong = None;
    let done = component.init(threads, modex, &mut |rail| {
        let card = rail.card();
        let end = used.saturating_add(card.len());
        match cards.get_mut(used..end) {
            None => wrong = Some(modex::InstancesError::NoRoom { needed: end }),
            Some(_) if size.is_some_and(|size| size != card.len()) => {
                wrong = Some(modex::InstancesError::Uneven { size: size.unwrap_or(0) as u32, bytes: card.len() });
            }
            Some(place) => {
                place.iter_mut().zip(card).for_each(|(to, from)| *to = *from);
                (used, size) = (end, Some(card.len()));
            }
        }
        let accepted = wrong.is_none() && accept(rail);
        count = count.saturating_add(u32::from(accepted));
        accepted
    });
    if let Some(wrong) = wrong {
        return Err(Refusal::Cards(wrong));
    }
    done?;
    if count != 0 {
        let cards = cards.get(..used).unwrap_or(&[]);
        let len = Instances::frame(size.unwrap_or(0) as u32, cards, framed).map_err(Refusal::Cards)?;
        modex.send(&component.identity(), framed.get(..len).unwrap_or(&[])).map_err(Refusal::Unpublished)?;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::Arena;
    use crate::modex::{RecvError, Store, StoreConfig, Version};
    use crate::rail::Peer;
    use crate::rail::Rail;
    use crate::rail::testing::{Scripted, rails};
    use crate::time::Instant;
    use std::{string::ToString, vec, vec::Vec};

    /// A component with the devices that a test gives it.
    #[derive(Default)]
    struct Given {
        name: &'static str,
        missing: Option<&'static str>,
        devices: Vec<Scripted>,
        threads: Threads,
        /// The answer to a request for its peer's card during `init`.
        early: Option<Result<usize, RecvError>>,
        closed: u32,
    }

    impl Component<Scripted> for Given {
        fn identity(&self) -> modex::Component<'static> {
            let v = Version::new(1, 0, 0);
            modex::Component { mca: v, kind: "btl", kind_version: v, name: self.name, version: v }
        }

        fn open(&mut self) -> Result<(), Refusal> {
            self.missing.map_or(Ok(()), |what| Err(Refusal::Missing(what)))
        }

        fn init(
            &mut self,
            threads: Threads,
            modex: &mut dyn Modex,
            accept: &mut dyn FnMut(Scripted) -> bool,
        ) -> Result<(), Refusal> {
            self.threads = threads;
            self.early = Some(modex.recv(&self.identity(), 1, &mut [0; 64]));
            self.devices.drain(..).all(accept).then_some(()).ok_or(Refusal::NoRoom)
        }

        fn close(&mut self) {
            self.closed += 1;
        }
    }

    fn store(me: u32) -> Store<'static> {
        let config = StoreConfig { me, size: 2, ..StoreConfig::default() };
        Store::new(config, &mut Arena::new(vec![0; 1 << 14].leak())).unwrap()
    }

    fn given(name: &'static str, devices: Vec<Scripted>) -> Given {
        Given { name, devices, ..Given::default() }
    }

    /// Starts components with room for `room` rails. Returns the result of each, and the rails.
    fn run(
        components: &mut [&mut dyn Component<Scripted>],
        store: &mut Store<'_>,
        room: usize,
    ) -> (Vec<Started>, Vec<Scripted>) {
        let (mut outcomes, mut kept) = (vec![Started::Rails(99); components.len()], Vec::new());
        let threads = Threads { progress: true, mpi: false };
        start(components, &mut outcomes, threads, store, &mut [0; 128], &mut |rail| {
            let fits = kept.len() < room;
            kept.extend(fits.then_some(rail));
            fits
        });
        (outcomes, kept)
    }

    #[test]
    fn p1_b1_a_component_that_cannot_open_is_dropped_alone() {
        let (mut good, mut other) = (given("good", rails(1)), given("other", rails(1)));
        let mut bad = Given { missing: Some("/dev/infiniband"), ..given("bad", rails(1)) };
        let (outcomes, kept) = run(&mut [&mut good, &mut bad, &mut other], &mut store(0), 9);
        let reason = Refusal::Missing("/dev/infiniband");
        assert_eq!(outcomes, [Started::Rails(1), Started::Dropped(reason), Started::Rails(1)]);
        assert_eq!(outcomes[1].to_string(), "dropped: /dev/infiniband is missing");
        assert_eq!(kept.len(), 2);
        assert!(bad.early.is_none() && bad.closed == 0, "none of its methods is called any more");
        assert_eq!(good.threads, Threads { progress: true, mpi: false });
    }

    #[test]
    fn p2_b1_none_one_or_one_rail_per_device() {
        let (mut none, mut one, mut many) = (given("none", vec![]), given("one", rails(1)), given("many", rails(3)));
        let mut store = store(0);
        let (outcomes, kept) = run(&mut [&mut none, &mut one, &mut many], &mut store, 9);
        assert_eq!(outcomes, [Started::Rails(0), Started::Rails(1), Started::Rails(3)]);
        assert_eq!(kept.len(), 4);
        let mut bytes = [0; 64];
        assert!(store.recv(&none.identity(), 0, &mut bytes).is_err());
        let len = store.recv(&many.identity(), 0, &mut bytes).unwrap();
        let cards = Instances::parse(&bytes[..len]).unwrap();
        assert!(cards.iter().eq(kept[1..].iter().map(|rail| rail.card())), "one card per device, in order");
    }

    #[test]
    fn p4_b1_cards_are_there_when_peers_are_added_and_not_before() {
        let mut hub = rails(2);
        let (mut right, mut left) = (given("tcp", hub.drain(1..).collect()), given("tcp", hub));
        let (mut here, mut there) = (store(0), store(1));
        let (_, mut kept) = run(&mut [&mut left], &mut here, 9);
        let (_, theirs) = run(&mut [&mut right], &mut there, 9);
        assert_eq!(left.early, Some(Err(RecvError::NotYet)));
        let mut wire = [0; 512];
        let len = there.encode(&mut wire).unwrap();
        here.merge(&wire[..len]).unwrap();
        here.exchange(Instant::ZERO, Instant::from_nanos(1)).unwrap();
        let mut bytes = [0; 64];
        let len = here.recv(&left.identity(), 1, &mut bytes).unwrap();
        let card = Instances::parse(&bytes[..len]).unwrap().get(0).unwrap();
        assert_eq!(card, theirs[0].card());
        kept[0].add_peer(Peer(0), card).unwrap();
    }

    #[test]
    fn p8_b1_a_component_that_fails_to_start_is_closed_and_not_published() {
        let (mut many, mut next) = (given("many", rails(3)), given("next", vec![]));
        let mut store = store(0);
        let (outcomes, kept) = run(&mut [&mut many, &mut next], &mut store, 2);
        assert_eq!(outcomes, [Started::Dropped(Refusal::NoRoom), Started::Rails(0)]);
        assert_eq!((kept.len(), many.closed, next.closed), (2, 1, 0));
        assert!(store.recv(&many.identity(), 0, &mut [0; 64]).is_err());
        // Cards that do not fit the scratch memory are the component's refusal, not a panic.
        let mut wide = given("wide", rails(17));
        let (outcomes, _) = run(&mut [&mut wide], &mut store, 99);
        assert!(matches!(outcomes[0], Started::Dropped(Refusal::Cards(_))), "{:?}", outcomes[0]);
    }
}
