//! The data of a bundle.

use core::marker::PhantomData;

use super::attributes;
use super::card::{self, LENGTH, PREFIX};
use super::entries::{Held, PeerState, Withheld};
use super::errors::BundleError;
use crate::arena::Arena;
use crate::pool::Pool;
use crate::queue::Queue;
use crate::rail::{Attributes, Capabilities, FullRail};
use crate::time::Instant;

/// The most links of a bundle.
const MAX_LINKS: usize = 64;

/// The sizes of a bundle's tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Config {
    /// The most peers at the same time.
    pub peers: u32,
    /// How many long frames the bundle keeps back from its user, in addition to as many as the user may hold. A link that went down
    /// and came up again yields frames although the user still holds frames from before. If the table is full, links are polled
    /// later. So it should have the sum of [`Config::deliveries`](crate::link::Config::deliveries) of all links.
    pub deliveries: u32,
}

impl Config {
    /// The most bytes that a bundle of these links takes from its arena.
    pub fn bytes<R: FullRail>(&self, links: &[R]) -> usize {
        let frames = frames_of(links, self.deliveries);
        Arena::cost::<u8>(card_bytes(links))
            .saturating_add(Pool::<PeerState>::cost(self.peers))
            .saturating_add(Arena::cost::<u32>((self.peers as usize).saturating_mul(links.len())))
            .saturating_add(Queue::cost(self.peers as usize))
            .saturating_add(Pool::<Held>::cost(frames[0].saturating_add(frames[1])))
            .saturating_add(Arena::cost::<Option<Withheld>>(frames[1] as usize))
    }
}

/// Counts of a bundle since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Counters {
    /// How many times a link to a peer went down while another one went on.
    pub links_down: u64,
    /// How many times such a link came up again.
    pub links_up: u64,
    /// Frames that another link has sent for a link that was down.
    pub frames_migrated: u64,
    /// Migrated frames that had arrived before, or that no link knew.
    pub duplicates: u64,
}

/// Several links to each peer as one rail. See the [module](super).
///
/// `L` owns the links: an array, a vector, a box. The tables are in the arena that [`new`](Self::new) was given.
#[derive(Debug)]
pub struct Bundle<'m, R, L> {
    pub(super) links: L,
    pub(super) attributes: Attributes,
    pub(super) card: &'m [u8],
    /// The peers. The slot of a peer is its endpoint here, and its number for the links.
    pub(super) peers: Pool<'m, PeerState>,
    /// The endpoints of the links for each peer, those of one peer together.
    pub(super) endpoints: &'m mut [u32],
    /// Peers whose frames migrate.
    pub(super) migrating: Queue<'m>,
    /// The frames that the links hold for the user, or for this bundle.
    pub(super) held: Pool<'m, Held>,
    /// How many of them the user holds.
    pub(super) out: u32,
    /// Frames that arrived and were not reported yet: first those that arrived first, then unused entries.
    pub(super) withheld: &'m mut [Option<Withheld>],
    /// Counts the frames that links hold.
    pub(super) serial: u64,
    /// The link whose grant was the last one.
    pub(super) granted: usize,
    /// The link that is polled next.
    pub(super) turn: usize,
    /// Whether a link may have further events, although the last poll ended without one.
    pub(super) more: bool,
    /// The time of the last poll.
    pub(super) now: Instant,
    pub(super) counters: Counters,
    rail: PhantomData<R>,
}

impl<'m, R: FullRail, L: AsRef<[R]> + AsMut<[R]>> Bundle<'m, R, L> {
    /// Bundles links of the same kind, which have no peers yet. Each needs a name of its own
    /// ([`Config::link`](crate::link::Config::link)).
    ///
    /// # Errors
    /// [`BundleError`].
    pub fn new(links: L, config: Config, arena: &mut Arena<'m>) -> Result<Self, BundleError> {
        let parts = links.as_ref();
        let attributes = attributes::attributes(parts).filter(|_| parts.len() <= MAX_LINKS);
        let attributes = attributes.ok_or(BundleError::Count(parts.len()))?;
        let no_link = |rail: &R| !rail.attributes().capabilities.contains(Capabilities::FAILOVER_SUPPORT);
        if let Some(index) = parts.iter().position(no_link) {
            return Err(BundleError::NoLink(index));
        }
        let [kept, withheld] = frames_of(parts, config.deliveries);
        let card = write_card(parts, arena)?;
        Ok(Self {
            attributes,
            card,
            peers: Pool::new(arena, config.peers).map_err(BundleError::Memory)?,
            endpoints: arena.table((config.peers as usize).saturating_mul(parts.len())).map_err(BundleError::Memory)?,
            migrating: Queue::new(arena, config.peers as usize).map_err(BundleError::Memory)?,
            held: Pool::new(arena, kept.saturating_add(withheld)).map_err(BundleError::Memory)?,
            out: 0,
            withheld: arena.filled(withheld as usize, None).map_err(BundleError::Memory)?,
            serial: 0,
            granted: 0,
            turn: 0,
            more: false,
            now: Instant::ZERO,
            counters: Counters::default(),
            links,
            rail: PhantomData,
        })
    }

    /// The links.
    pub fn links(&self) -> &[R] {
        self.links.as_ref()
    }

    /// The links, for calls that concern no peer.
    pub fn links_mut(&mut self) -> &mut [R] {
        self.links.as_mut()
    }

    /// Counts since the bundle was made.
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Ends the bundle, and returns the links.
    pub fn into_links(self) -> L {
        self.links
    }

    pub(super) fn link(&self, index: usize) -> Option<&R> {
        self.links.as_ref().get(index)
    }

    pub(super) fn link_mut(&mut self, index: usize) -> Option<&mut R> {
        self.links.as_mut().get_mut(index)
    }

    /// The number of links.
    pub(super) fn count(&self) -> usize {
        self.links.as_ref().len()
    }
}

/// How many frames the user may hold, and how many the bundle may keep back.
fn frames_of<R: FullRail>(links: &[R], deliveries: u32) -> [u32; 2] {
    let kept = links.iter().fold(0u32, |sum, link| sum.saturating_add(link.attributes().frames_kept)).max(1);
    [kept, kept.saturating_add(deliveries)]
}

fn card_bytes<R: FullRail>(links: &[R]) -> usize {
    let each = links.iter().map(|link| link.card().len().saturating_add(LENGTH));
    each.fold(PREFIX, usize::saturating_add)
}

fn write_card<'m, R: FullRail>(links: &[R], arena: &mut Arena<'m>) -> Result<&'m [u8], BundleError> {
    if let Some(index) = links.iter().position(|link| link.card().len() > u16::MAX.into()) {
        return Err(BundleError::LongCard(index));
    }
    let card = arena.table::<u8>(card_bytes(links)).map_err(BundleError::Memory)?;
    let prefix = card::prefix(links.len() as u8);
    let lengths = links.iter().map(|link| (link.card().len() as u16).to_le_bytes());
    let cards =
        lengths.zip(links.iter().map(R::card)).flat_map(|(len, card)| len.into_iter().chain(card.iter().copied()));
    card.iter_mut().zip(prefix.into_iter().chain(cards)).for_each(|(to, from)| *to = from);
    Ok(card)
}
