//! The peers of a device, and what is known of the messages between their devices and this one. After the failure of a device, the
//! processes tell each other these counts, so that each knows when it has all messages of the devices (core/WIRE.md).

use towline_core::convertor::Span;
use towline_core::pml::offload::ANNOUNCEMENT;

use crate::pipeline::Limits;

/// The version of announcements.
const VERSION: u32 = 1;

/// Bit of an announcement: the sender's device has failed, or does not reach the receiver's device.
const CUT_OFF: u32 = 1;

/// What a process tells a peer. All counts are modulo 2^32.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Announcement {
    /// Messages that were given to the sender's device for the receiver.
    given: u32,
    /// Those of them that the receiver's device is known to have refused: no receive gets them.
    refused: u32,
    /// The messages that have not arrived are lost.
    is_cut_off: bool,
}

impl Announcement {
    /// Its bytes: four words, the lowest byte first.
    fn encode(self) -> [u8; ANNOUNCEMENT] {
        let words = [VERSION, self.given, self.refused, if self.is_cut_off { CUT_OFF } else { 0 }];
        let mut bytes = [0; ANNOUNCEMENT];
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The announcement of these bytes. `None` if it is of another version.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let word = |index: usize| bytes.get(index * 4..)?.first_chunk().map(|word| u32::from_le_bytes(*word));
        let [version, given, refused, flags] = [word(0)?, word(1)?, word(2)?, word(3)?];
        (version == VERSION).then_some(Self { given, refused, is_cut_off: flags & CUT_OFF != 0 })
    }
}

/// A peer.
#[derive(Debug, Default)]
pub struct Peer {
    /// Messages that were given to the device for it.
    pub given: u32,
    /// Messages that it has refused.
    pub refused: u32,
    /// Messages of it that receives or probes have taken.
    pub taken: u32,
    /// What its host has room for. `None`: it takes no message in pieces.
    pub limits: Option<Limits>,
    /// Its device does not answer this one.
    pub is_unreachable: bool,
    /// The process is lost or has ended: nothing is waited for.
    pub is_gone: bool,
    /// It has told something.
    told: Option<Announcement>,
    /// What it was told last.
    heard: Option<[u8; ANNOUNCEMENT]>,
    /// All announcements to it. The engine may read them for as long as it exists.
    sent: Vec<Vec<u8>>,
    /// Where its announcements go. The engine may write there for as long as it exists.
    place: Vec<u8>,
    /// All its messages have arrived, or are lost.
    pub has_all: bool,
    /// Messages of it were lost, and no receive has been told.
    pub has_loss: bool,
}

impl Peer {
    /// Whether it has told how many messages are to come.
    pub const fn has_told(&self) -> bool {
        self.told.is_some()
    }

    /// Whether messages of it that have not arrived will not come.
    pub fn is_cut_off(&self) -> bool {
        self.is_unreachable || self.told.is_some_and(|told| told.is_cut_off)
    }

    /// Whether all messages that it has given to its device have arrived: `arrived` of them have.
    pub fn has_given(&self, arrived: u32) -> bool {
        self.told.is_some_and(|told| told.given == arrived)
    }

    /// As [`has_taken_all`](Self::has_taken_all), but for those that are left in the device.
    pub fn has_taken_all_but(&self, left: u64) -> bool {
        let taken = self.taken.wrapping_add(left as u32);
        self.told.is_some_and(|told| told.given.wrapping_sub(told.refused) == taken)
    }

    /// Whether receives have taken all messages that it has given to its device, as far as this process knows. The peer does not know of
    /// refusals that were lost on the way, and then this is false although no message is lost.
    pub fn has_taken_all(&self) -> bool {
        self.told.is_some_and(|told| told.given.wrapping_sub(told.refused) == self.taken)
    }
}

/// The peers of a device.
#[derive(Debug, Default)]
pub struct Peers {
    /// By their numbers, which are those of an engine: small, and nearly all in use.
    peers: Vec<Option<Peer>>,
    /// Memory of announcements of peers that were removed. The engine may still use it.
    removed: Vec<Vec<u8>>,
}

impl Peers {
    /// Adds a peer, or another one in the place of a former one.
    pub fn add(&mut self, number: u32, limits: Option<Limits>) {
        self.remove(number);
        let at = number as usize;
        if self.peers.len() <= at {
            self.peers.resize_with(at + 1, || None);
        }
        if let Some(place) = self.peers.get_mut(at) {
            *place = Some(Peer { place: vec![0; ANNOUNCEMENT], limits, ..Peer::default() });
        }
    }

    /// Removes a peer. Returns whether there was one.
    pub fn remove(&mut self, number: u32) -> bool {
        let Some(peer) = self.peers.get_mut(number as usize).and_then(Option::take) else { return false };
        self.removed.extend(peer.sent);
        self.removed.push(peer.place);
        true
    }

    /// Whether there is such a peer.
    pub fn contains(&self, number: u32) -> bool {
        self.get(number).is_some()
    }

    /// A peer.
    pub fn get(&self, number: u32) -> Option<&Peer> {
        self.peers.get(number as usize)?.as_ref()
    }

    /// A peer.
    #[inline]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut Peer> {
        self.peers.get_mut(number as usize)?.as_mut()
    }

    /// All peers with their numbers.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Peer)> {
        (0..).zip(&mut self.peers).filter_map(|(number, peer)| Some((number, peer.as_mut()?)))
    }

    /// The numbers of all peers.
    pub fn numbers(&self) -> Vec<u32> {
        (0..).zip(&self.peers).filter_map(|(number, peer)| peer.as_ref().map(|_| number)).collect()
    }

    /// The next announcement that a peer has not got. `has_failed`: the own device has failed. `will_change`: what is known of a peer will
    /// change without an action of the program, so a further announcement can wait.
    pub fn next_announcement(&mut self, has_failed: bool, will_change: impl Fn(u32) -> bool) -> Option<(u32, Span)> {
        self.iter_mut().find_map(|(number, peer)| {
            let (given, refused) = (peer.given, peer.refused);
            let bytes = Announcement { given, refused, is_cut_off: has_failed || peer.is_unreachable }.encode();
            let can_wait = || peer.heard.is_some() && will_change(number);
            if peer.is_gone || peer.heard == Some(bytes) || can_wait() {
                return None;
            }
            if peer.sent.last().is_none_or(|last| *last != bytes) {
                peer.sent.push(bytes.to_vec());
            }
            peer.sent.last().map(|bytes| (number, Span::of(bytes)))
        })
    }

    /// The last announcement to a peer was sent.
    pub fn announced(&mut self, number: u32) {
        if let Some(peer) = self.get_mut(number) {
            peer.heard = peer.sent.last().and_then(|bytes| bytes.first_chunk().copied());
        }
    }

    /// Where the announcement of a peer goes.
    pub fn place(&mut self, number: u32) -> Option<Span> {
        self.get_mut(number).map(|peer| Span::contiguous(peer.place.as_mut_ptr(), peer.place.len()))
    }

    /// The announcement of a peer is in its place.
    pub fn read_place(&mut self, number: u32) {
        if let Some(peer) = self.get_mut(number) {
            // Of another version nothing is understood, so nothing can be waited for.
            let unknown = Announcement { given: 0, refused: 0, is_cut_off: true };
            peer.told = Some(Announcement::decode(&peer.place).unwrap_or(unknown));
            peer.has_all = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcements_have_the_bytes_of_the_specification() {
        let announcement = Announcement { given: 0x0102_0304, refused: 5, is_cut_off: true };
        let bytes = [1, 0, 0, 0, 4, 3, 2, 1, 5, 0, 0, 0, 1, 0, 0, 0];
        assert_eq!((announcement.encode(), Announcement::decode(&bytes)), (bytes, Some(announcement)));
        assert_eq!(Announcement::decode(&[2, 0, 0, 0, 4, 3, 2, 1, 5, 0, 0, 0, 1, 0, 0, 0]), None);
        assert_eq!(Announcement::decode(&bytes[..15]), None);
    }

    #[test]
    fn an_announcement_is_sent_again_only_if_it_changes() {
        let mut peers = Peers::default();
        peers.add(3, None);
        assert!(
            peers.next_announcement(false, |_| false).is_some() && peers.next_announcement(false, |_| false).is_some()
        );
        peers.announced(3);
        assert!(peers.next_announcement(false, |_| false).is_none());
        assert!(peers.next_announcement(true, |_| false).is_some());
        peers.announced(3);
        peers.get_mut(3).unwrap().given += 1;
        assert!(peers.next_announcement(true, |peer| peer == 3).is_none());
        assert!(peers.next_announcement(true, |_| false).is_some());
        peers.get_mut(3).unwrap().is_gone = true;
        assert!(peers.next_announcement(true, |_| false).is_none());
    }
}
