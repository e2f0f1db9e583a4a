//! The store of a process: all publications that it knows, in given memory and without I/O.

use core::fmt;

use zerocopy::FromZeros;

use super::bytes::{Reader, Writer, copy};
use super::set::{NoRoom, Set, SetError, SetWriter, entry_size};
use super::{
    Change, Component, Exchange, ExchangeError, Modex, RecvError, SendError, Stamp, Version, Watch, WatchError,
};
use crate::arena::{Arena, OutOfMemory};
use crate::time::Instant;

/// The sizes of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct StoreConfig {
    /// The rank of this process.
    pub me: u32,
    /// The number of processes.
    pub size: u32,
    /// The incarnation of this process: larger than that of any earlier process with this rank in the job.
    pub incarnation: u32,
    /// The most components in the store: those that this process or a peer has published data for, and those that this process
    /// watches.
    pub components: u32,
    /// Bytes for all published data together. Each publication needs 8 more bytes.
    pub bytes: u32,
}

impl Default for StoreConfig {
    /// One process, with room for 4 components and 1 KiB of data.
    fn default() -> Self {
        Self { me: 0, size: 1, incarnation: 1, components: 4, bytes: 1024 }
    }
}

impl StoreConfig {
    /// The most bytes that a store of these sizes takes from an arena.
    pub const fn memory(&self) -> usize {
        let cells = (self.size as usize).saturating_mul(self.components as usize);
        Arena::cost::<Key>(self.components as usize)
            .saturating_add(Arena::cost::<Peer>(self.size as usize))
            .saturating_add(Arena::cost::<Cell>(cells))
            .saturating_add(self.bytes as usize)
    }
}

/// The identity of a component, in a fixed number of bytes.
#[derive(FromZeros, Clone, Copy)]
struct Key {
    versions: [u16; 9],
    kind_len: u8,
    name_len: u8,
    kind: [u8; Component::KIND_MAX],
    name: [u8; Component::NAME_MAX],
}

impl Key {
    fn new(of: &Component<'_>) -> Self {
        let Component { mca, kind_version, version, .. } = of;
        let mut key = Self {
            versions: [
                mca.major,
                mca.minor,
                mca.release,
                kind_version.major,
                kind_version.minor,
                kind_version.release,
                version.major,
                version.minor,
                version.release,
            ],
            kind_len: of.kind.len() as u8,
            name_len: of.name.len() as u8,
            kind: [0; Component::KIND_MAX],
            name: [0; Component::NAME_MAX],
        };
        copy(&mut key.kind, of.kind.as_bytes());
        copy(&mut key.name, of.name.as_bytes());
        key
    }

    fn component(&self) -> Component<'_> {
        let [a, b, c, d, e, f, g, h, i] = self.versions;
        fn text(bytes: Option<&[u8]>) -> &str {
            bytes.and_then(|bytes| str::from_utf8(bytes).ok()).unwrap_or("")
        }
        Component {
            mca: Version::new(a, b, c),
            kind: text(self.kind.get(..self.kind_len as usize)),
            kind_version: Version::new(d, e, f),
            name: text(self.name.get(..self.name_len as usize)),
            version: Version::new(g, h, i),
        }
    }
}

/// The stamp of a peer's newest set; revision 0 if no set has arrived.
#[derive(FromZeros, Clone, Copy)]
struct Peer {
    incarnation: u32,
    revision: u32,
}

/// The data that one peer has published for one component.
#[derive(FromZeros, Clone, Copy)]
struct Cell {
    /// The revision of the entry; 0 if there is no data.
    revision: u32,
    /// The offset of the block in `Store::data`.
    offset: u32,
    /// Bytes of data. The block may be longer.
    length: u32,
    watched: u8,
    queued: u8,
    padding: u16,
    /// The next cell in the list of changes, plus one; 0: this is the last one.
    next: u32,
}

/// The publications that a process knows: its own and those of its peers. Each operation takes constant time, with two
/// exceptions: it searches for a component in a short list, and it compacts the data if a publication replaces a shorter one
/// and there is no room for it, which is rare.
///
/// Components use the store by [`Modex`]. The code that transports sets calls [`encode`](Self::encode) when
/// [`revision`](Self::revision) has grown, and [`merge`](Self::merge) for each set that arrives from a peer.
pub struct Store<'m> {
    me: u32,
    open: bool,
    keys: &'m mut [Key],
    keys_used: usize,
    peers: &'m mut [Peer],
    known: u32,
    cells: &'m mut [Cell],
    /// Blocks one after another. A block has a header of 8 bytes, the index of its cell and its length, and then the data.
    data: &'m mut [u8],
    data_end: usize,
    /// Bytes of the blocks to which cells refer, with their headers.
    data_live: usize,
    /// The first and the last cell in the list of changes, plus one.
    changed: (u32, u32),
}

const BLOCK_HEADER: usize = 8;

impl<'m> Store<'m> {
    /// Makes an empty store. [`StoreConfig::memory`] returns how much memory it takes from the arena.
    ///
    /// # Errors
    /// [`OutOfMemory`] if the arena is too small.
    ///
    /// ```
    /// use towline_core::arena::Arena;
    /// use towline_core::modex::{Store, StoreConfig};
    ///
    /// let config = StoreConfig { me: 3, size: 4, components: 2, bytes: 512, ..StoreConfig::default() };
    /// let mut memory = vec![0; config.memory()];
    /// assert!(Store::new(config, &mut Arena::new(&mut memory)).is_ok());
    /// ```
    pub fn new(config: StoreConfig, arena: &mut Arena<'m>) -> Result<Self, OutOfMemory> {
        let cells = (config.size as usize).checked_mul(config.components as usize).filter(|n| *n < u32::MAX as usize);
        let cells = cells.ok_or(OutOfMemory { asked: usize::MAX, left: arena.left() })?;
        let mut store = Self {
            me: config.me,
            open: true,
            keys: arena.table(config.components as usize)?,
            keys_used: 0,
            peers: arena.table(config.size as usize)?,
            known: 0,
            cells: arena.table(cells)?,
            data: arena.table(config.bytes as usize)?,
            data_end: 0,
            data_live: 0,
            changed: (0, 0),
        };
        // A rank that publishes nothing has an empty set of revision 1.
        if let Some(me) = store.peers.get_mut(config.me as usize) {
            *me = Peer { incarnation: config.incarnation, revision: 1 };
            store.known = 1;
        }
        Ok(store)
    }

    /// The revision of this process's set, which [`encode`](Self::encode) writes. It grows with each publication of this process.
    pub fn revision(&self) -> u32 {
        self.peers.get(self.me as usize).map_or(0, |me| me.revision)
    }

    /// The number of bytes that [`encode`](Self::encode) writes now.
    pub fn encoded_len(&self) -> usize {
        self.own().fold(Set::HEADER, |sum, (key, _, data)| sum.saturating_add(entry_size(&key.component(), data.len())))
    }

    /// Writes this process's publications as a [`Set`] to `into`. Returns its length in bytes.
    ///
    /// # Errors
    /// [`NoRoom`] with the length that is needed, if `into` is shorter.
    pub fn encode(&self, into: &mut [u8]) -> Result<usize, NoRoom> {
        let needed = NoRoom { needed: self.encoded_len() };
        let me = self.peers.get(self.me as usize).ok_or(needed)?;
        let stamp = Stamp { incarnation: me.incarnation, revision: me.revision };
        let mut writer = SetWriter::new(into, self.me, stamp).ok_or(needed)?;
        for (key, revision, data) in self.own() {
            writer.entry(&key.component(), revision, data).map_err(|_| needed)?;
        }
        Ok(writer.finish())
    }

    fn own(&self) -> impl Iterator<Item = (&Key, u32, &[u8])> {
        let row = (self.me as usize).checked_mul(self.keys.len()).and_then(|start| self.cells.get(start..));
        let row = row.unwrap_or(&[]).iter().zip(self.keys.iter().take(self.keys_used));
        row.filter(|(cell, _)| cell.revision != 0).map(|(cell, key)| (key, cell.revision, self.block(cell)))
    }

    /// Takes in a set of a peer. Some transports deliver a set that is older than the known one, a set twice, or this process's
    /// own set. Such a set changes nothing.
    ///
    /// # Errors
    /// [`MergeError`]. If there is no room, the entries that did fit are stored, and the same set may be merged again.
    pub fn merge(&mut self, set: &[u8]) -> Result<Merged, MergeError> {
        if !self.open {
            return Err(MergeError::Closed);
        }
        let set = Set::parse(set).map_err(MergeError::Malformed)?;
        let rank = set.rank();
        let old = *self.peers.get(rank as usize).ok_or(MergeError::NoSuchPeer { rank })?;
        let old = Stamp { incarnation: old.incarnation, revision: old.revision };
        let new = set.stamp();
        if rank == self.me || (old.revision != 0 && new <= old) {
            return Ok(Merged::Old);
        }
        let restarted = new.incarnation != old.incarnation;
        let mut stored = self.put_entries(&set, restarted);
        if matches!(stored, Err(MergeError::TooLong { .. })) && self.fits(&set) {
            // The older set has data that this one does not have, or blocks that are longer than their new data.
            self.drop_absent(&set);
            for column in 0..self.keys_used {
                self.index(rank, column).into_iter().for_each(|index| self.discard(index));
            }
            stored = self.put_entries(&set, true);
        }
        stored?;
        self.drop_absent(&set);
        if let Some(peer) = self.peers.get_mut(rank as usize) {
            *peer = Peer { incarnation: new.incarnation, revision: new.revision };
        }
        if old.revision == 0 {
            self.known = self.known.saturating_add(1);
        }
        Ok(if restarted && old.revision != 0 { Merged::Restarted } else { Merged::New })
    }

    /// Whether there is room for a set once the older set of the same peer is gone.
    fn fits(&self, set: &Set<'_>) -> bool {
        let block = |len: usize| len.saturating_add(BLOCK_HEADER);
        let cells = (0..self.keys_used).filter_map(|column| self.cells.get(self.index(set.rank(), column)?));
        let blocks = cells.filter(|cell| cell.revision != 0).filter_map(|cell| self.block_size(cell.offset));
        let freed = blocks.fold(0usize, |sum, size| sum.saturating_add(block(size)));
        let needed = set.entries().fold(0usize, |sum, entry| sum.saturating_add(block(entry.data.len())));
        needed <= self.data.len().saturating_sub(self.data_live.saturating_sub(freed))
    }

    /// Stores the entries of a set. `all`: also those whose revision is known.
    fn put_entries(&mut self, set: &Set<'_>, all: bool) -> Result<(), MergeError> {
        for entry in set.entries() {
            let index = self.cell_of(&entry.component, set.rank()).map_err(|_| MergeError::TooManyComponents)?;
            if all || self.cells.get(index).is_none_or(|cell| cell.revision != entry.revision) {
                let stored = self.put(index, entry.revision, entry.data);
                stored.map_err(|(needed, room)| MergeError::TooLong { needed, room })?;
                self.mark_changed(index);
            }
        }
        Ok(())
    }

    /// Removes the data that a peer does not publish any more.
    fn drop_absent(&mut self, set: &Set<'_>) {
        for column in 0..self.keys_used {
            let Some(index) = self.index(set.rank(), column) else { return };
            let listed = self.keys.get(column).is_some_and(|key| set.find(&key.component()).is_some());
            if !listed && self.cells.get(index).is_some_and(|cell| cell.revision != 0) {
                self.discard(index);
                self.mark_changed(index);
            }
        }
    }

    fn index(&self, peer: u32, column: usize) -> Option<usize> {
        (peer as usize).checked_mul(self.keys.len())?.checked_add(column)
    }

    fn column(&self, component: &Component<'_>) -> Option<usize> {
        self.keys.iter().take(self.keys_used).position(|key| key.component().corresponds(component))
    }

    /// The index of the cell of a component and a peer. A component without a column gets one. `peer` must be a rank of the job.
    fn cell_of(&mut self, component: &Component<'_>, peer: u32) -> Result<usize, NoColumn> {
        let column = match self.column(component) {
            Some(column) => column,
            None => {
                *self.keys.get_mut(self.keys_used).ok_or(NoColumn)? = Key::new(component);
                self.keys_used = self.keys_used.saturating_add(1);
                self.keys_used.saturating_sub(1)
            }
        };
        self.index(peer, column).ok_or(NoColumn)
    }

    fn block(&self, cell: &Cell) -> &[u8] {
        let start = (cell.offset as usize).saturating_add(BLOCK_HEADER);
        self.data.get(start..).and_then(|block| block.get(..cell.length as usize)).unwrap_or(&[])
    }

    /// Puts data into a cell: into the block of the cell if it fits, otherwise into a new block, after a compaction if that is
    /// needed. The error has the bytes that are needed, and the bytes that are free.
    fn put(&mut self, index: usize, revision: u32, data: &[u8]) -> Result<(), (usize, usize)> {
        let Some(cell) = self.cells.get(index).copied() else { return Err((data.len(), 0)) };
        let old = if cell.revision == 0 { None } else { self.block_size(cell.offset) };
        let offset = match old {
            Some(size) if data.len() <= size => cell.offset,
            _ => {
                let needed = data.len().saturating_add(BLOCK_HEADER);
                let freed = old.map_or(0, |size| size.saturating_add(BLOCK_HEADER));
                let room = self.data.len().saturating_sub(self.data_live.saturating_sub(freed));
                if needed > room {
                    return Err((needed, room));
                }
                self.discard(index);
                if needed > self.data.len().saturating_sub(self.data_end) {
                    self.compact();
                }
                self.append(index, data.len()).ok_or((needed, room))?
            }
        };
        let start = (offset as usize).saturating_add(BLOCK_HEADER);
        if let Some(block) = self.data.get_mut(start..).and_then(|block| block.get_mut(..data.len())) {
            copy(block, data);
        }
        if let Some(cell) = self.cells.get_mut(index) {
            (cell.revision, cell.offset, cell.length) = (revision, offset, data.len() as u32);
        }
        Ok(())
    }

    /// The length of a block, in bytes without its header.
    fn block_size(&self, offset: u32) -> Option<usize> {
        let mut reader = Reader::new(self.data.get(offset as usize..)?);
        reader.u32()?;
        reader.u32().map(|size| size as usize)
    }

    fn append(&mut self, index: usize, size: usize) -> Option<u32> {
        let offset = u32::try_from(self.data_end).ok()?;
        let mut writer = Writer::new(self.data.get_mut(self.data_end..)?);
        writer.u32(u32::try_from(index).ok()?)?;
        writer.u32(u32::try_from(size).ok()?)?;
        let whole = size.saturating_add(BLOCK_HEADER);
        self.data_end = self.data_end.saturating_add(whole);
        self.data_live = self.data_live.saturating_add(whole);
        Some(offset)
    }

    /// Empties a cell. The next compaction frees its block.
    fn discard(&mut self, index: usize) {
        let Some(cell) = self.cells.get(index).copied() else { return };
        if cell.revision != 0 {
            let size = self.block_size(cell.offset).unwrap_or(0);
            self.data_live = self.data_live.saturating_sub(size.saturating_add(BLOCK_HEADER));
        }
        if let Some(cell) = self.cells.get_mut(index) {
            (cell.revision, cell.offset, cell.length) = (0, 0, 0);
        }
    }

    /// Moves the blocks that are in use to the front.
    fn compact(&mut self) {
        let (mut from, mut to) = (0usize, 0usize);
        while from < self.data_end {
            let mut reader = Reader::new(self.data.get(from..).unwrap_or(&[]));
            let Some((index, size)) = reader.u32().zip(reader.u32()) else { break };
            let whole = (size as usize).saturating_add(BLOCK_HEADER);
            let cell = self.cells.get_mut(index as usize);
            if let Some(cell) = cell.filter(|cell| cell.revision != 0 && cell.offset as usize == from) {
                cell.offset = to as u32;
                for step in 0..whole {
                    let byte = self.data.get(from.saturating_add(step)).copied().unwrap_or(0);
                    if let Some(place) = self.data.get_mut(to.saturating_add(step)) {
                        *place = byte;
                    }
                }
                to = to.saturating_add(whole);
            }
            from = from.saturating_add(whole);
        }
        self.data_end = to;
    }

    fn mark_changed(&mut self, index: usize) {
        let Some(cell) = self.cells.get_mut(index) else { return };
        if cell.watched == 0 || cell.queued != 0 {
            return;
        }
        (cell.queued, cell.next) = (1, 0);
        let link = (index as u32).wrapping_add(1);
        let (first, last) = self.changed;
        match (last as usize).checked_sub(1).and_then(|last| self.cells.get_mut(last)) {
            Some(last) => {
                last.next = link;
                self.changed = (first, link);
            }
            None => self.changed = (link, link),
        }
    }
}

/// No column is free for another component.
struct NoColumn;

impl Modex for Store<'_> {
    fn rank(&self) -> u32 {
        self.me
    }

    fn size(&self) -> u32 {
        self.peers.len() as u32
    }

    fn send(&mut self, component: &Component<'_>, data: &[u8]) -> Result<(), SendError> {
        if !self.open {
            return Err(SendError::Closed);
        }
        if !component.is_valid() || self.me >= self.size() {
            return Err(SendError::BadComponent);
        }
        let index = self.cell_of(component, self.me).map_err(|NoColumn| SendError::TooManyComponents)?;
        let revision = self.revision().saturating_add(1);
        self.put(index, revision, data).map_err(|(needed, room)| SendError::TooLong { needed, room })?;
        if let Some(me) = self.peers.get_mut(self.me as usize) {
            me.revision = revision;
        }
        self.mark_changed(index);
        Ok(())
    }

    fn recv(&mut self, component: &Component<'_>, peer: u32, into: &mut [u8]) -> Result<usize, RecvError> {
        if !self.open {
            return Err(RecvError::Closed);
        }
        let known = self.peers.get(peer as usize).ok_or(RecvError::NoSuchPeer)?.revision != 0;
        let cell = self.column(component).and_then(|column| self.cells.get(self.index(peer, column)?));
        let Some(cell) = cell.filter(|cell| known && cell.revision != 0) else {
            return Err(if known { RecvError::NotFound } else { RecvError::NotYet });
        };
        let data = self.block(cell);
        let into = into.get_mut(..data.len()).ok_or(RecvError::TooShort { needed: data.len() })?;
        copy(into, data);
        Ok(data.len())
    }

    fn recv_nb(&mut self, component: &Component<'_>, peer: u32) -> Result<Watch, WatchError> {
        if !self.open {
            return Err(WatchError::Closed);
        }
        if !component.is_valid() {
            return Err(WatchError::BadComponent);
        }
        if peer >= self.size() {
            return Err(WatchError::NoSuchPeer);
        }
        let index = self.cell_of(component, peer).map_err(|NoColumn| WatchError::TooManyComponents)?;
        if let Some(cell) = self.cells.get_mut(index).filter(|cell| cell.watched == 0) {
            cell.watched = 1;
            if cell.revision != 0 {
                self.mark_changed(index);
            }
        }
        Ok(Watch::from_bits(index as u64))
    }

    fn next_change(&mut self) -> Option<Change> {
        let (first, last) = self.changed;
        let index = first.checked_sub(1).filter(|_| self.open)?;
        let cell = self.cells.get_mut(index as usize)?;
        cell.queued = 0;
        self.changed = (cell.next, if cell.next == 0 { 0 } else { last });
        let peer = (index as usize).checked_div(self.keys.len())?;
        Some(Change { watch: Watch::from_bits(index as u64), peer: peer as u32 })
    }

    fn exchange(&mut self, now: Instant, deadline: Instant) -> Result<Exchange, ExchangeError> {
        if !self.open {
            return Err(ExchangeError::Closed);
        }
        let missing = self.size().saturating_sub(self.known);
        if missing == 0 {
            return Ok(Exchange::Done);
        }
        if now < deadline {
            return Ok(Exchange::Pending);
        }
        let first = self.peers.iter().position(|peer| peer.revision == 0).unwrap_or(0);
        Err(ExchangeError::Timeout { missing, first: first as u32 })
    }

    fn finalize(&mut self) {
        self.open = false;
        self.changed = (0, 0);
    }
}

impl fmt::Debug for Store<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("me", &self.me)
            .field("size", &self.peers.len())
            .field("known", &self.known)
            .field("components", &self.keys_used)
            .field("bytes", &self.data_live)
            .finish_non_exhaustive()
    }
}

/// The result of a merge.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Merged {
    /// The set was newer than the known one.
    New,
    /// The set was newer, and the peer was restarted since its last set.
    Restarted,
    /// The set was known, or older than the known one, or this process's own. Nothing has changed.
    Old,
}

/// Why a set was not merged, or only in part.
#[derive(Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum MergeError {
    /// The exchange was finalized.
    Closed,
    /// The bytes are not a valid set.
    Malformed(SetError),
    /// The job has no such rank.
    NoSuchPeer {
        /// The rank in the set.
        rank: u32,
    },
    /// The store has no room for another component.
    TooManyComponents,
    /// The data does not fit.
    TooLong {
        /// Bytes that are needed.
        needed: usize,
        /// Bytes that are free.
        room: usize,
    },
}

impl fmt::Display for MergeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the module exchange was finalized: merge sets before that"),
            Self::Malformed(why) => why.fmt(f),
            Self::NoSuchPeer { rank } => write!(
                f,
                "the peer's modex set has rank {rank}, which the job does not have: start all ranks by one launcher"
            ),
            Self::TooManyComponents => f.write_str(
                "the peer publishes data for one more component than there is room for: set `components` higher",
            ),
            Self::TooLong { needed, room } => {
                write!(f, "the peer's data needs {needed} bytes, and {room} are free: set `bytes` higher")
            }
        }
    }
}

impl core::error::Error for MergeError {}

crate::debug_as_display!(MergeError);

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
