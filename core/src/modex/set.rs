//! Sets: all publications of one process, as bytes that machines of any kind can read.
//!
//! All numbers are little-endian, and there is no padding. The parser accepts exactly the sets that the writer writes.
//!
//! | offset | bytes | header of the set |
//! |---|---|---|
//! | 0 | 4 | `TLMX` |
//! | 4 | 2 | version of this format, 1 |
//! | 6 | 2 | number of entries, at most [`Set::ENTRIES_MAX`] |
//! | 8 | 4 | rank of the publisher |
//! | 12 | 4 | incarnation: larger after a restart of the publisher |
//! | 16 | 4 | revision of the set: larger after each change within an incarnation, from 1 |
//! | 20 | 4 | length of the whole set in bytes, this header included |
//!
//! | offset | bytes | each entry; no two entries of a set correspond |
//! |---|---|---|
//! | 0 | 18 | versions of architecture, type and component: major, minor, release of each in 2 bytes |
//! | 18 | 1 | length k of the type's name, 1 to 31 |
//! | 19 | 1 | length n of the component's name, 1 to 63 |
//! | 20 | 4 | revision of the entry: larger after each publication, from 1, at most that of the set |
//! | 24 | 4 | length d of the data |
//! | 28 | k+n+d | both names in UTF-8, then the data |

use core::fmt;

use super::bytes::{Reader, Writer};
use super::{Component, Version};

const MAGIC: [u8; 4] = *b"TLMX";
const FORMAT: u16 = 1;

/// The time of a publication: the incarnation of its process, and the revision of the set. Later stamps are larger.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Stamp {
    /// The incarnation of the publisher: larger after each restart.
    pub incarnation: u32,
    /// The number of publications of this incarnation, from 1.
    pub revision: u32,
}

/// One publication: the data of a component.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Entry<'a> {
    /// The component that has published the data.
    pub component: Component<'a>,
    /// The number of publications of this incarnation up to this one.
    pub revision: u32,
    /// The data. The exchange does not interpret it.
    pub data: &'a [u8],
}

/// A parsed set: a view of bytes that were checked.
///
/// ```
/// use towline_core::modex::{Component, Stamp, Set, SetWriter, Version};
///
/// let v = Version::new(1, 0, 0);
/// let component = Component { mca: v, kind: "btl", kind_version: v, name: "tcp", version: v };
/// let mut bytes = [0u8; 128];
/// let mut writer = SetWriter::new(&mut bytes, 3, Stamp { incarnation: 1, revision: 1 }).unwrap();
/// writer.entry(&component, 1, b"10.0.0.1:4000").unwrap();
/// let length = writer.finish();
///
/// let set = Set::parse(&bytes[..length]).unwrap();
/// assert_eq!((set.rank(), set.len()), (3, 1));
/// assert_eq!(set.find(&component).unwrap().data, b"10.0.0.1:4000");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Set<'a> {
    rank: u32,
    stamp: Stamp,
    count: u16,
    entries: &'a [u8],
}

impl<'a> Set<'a> {
    /// Bytes before the first entry.
    pub const HEADER: usize = 24;
    /// Bytes of an entry besides names and data.
    pub const ENTRY: usize = 28;
    /// The most entries of a set. A process has far fewer components.
    pub const ENTRIES_MAX: u16 = 256;

    /// Checks all of `bytes`, and returns a view of them.
    ///
    /// # Errors
    /// [`SetError`] for the first fault.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, SetError> {
        let mut reader = Reader::new(bytes);
        if reader.take(MAGIC.len()).ok_or(SetError::Short)? != MAGIC {
            return Err(SetError::NotASet);
        }
        let format = reader.u16().ok_or(SetError::Short)?;
        if format != FORMAT {
            return Err(SetError::Format { theirs: format });
        }
        let mut header = || Some((reader.u16()?, reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?));
        let (count, rank, incarnation, revision, length) = header().ok_or(SetError::Short)?;
        if count > Self::ENTRIES_MAX {
            return Err(SetError::TooMany { count });
        }
        if length as usize != bytes.len() {
            return Err(if bytes.len() < length as usize { SetError::Short } else { SetError::Trailing });
        }
        if revision == 0 {
            return Err(SetError::BadRevision);
        }
        let set = Self { rank, stamp: Stamp { incarnation, revision }, count, entries: reader.rest() };
        set.check_entries()?;
        Ok(set)
    }

    fn check_entries(&self) -> Result<(), SetError> {
        let mut reader = Reader::new(self.entries);
        for index in 0..self.count as usize {
            let entry = read_entry(&mut reader)?;
            if entry.revision == 0 || entry.revision > self.stamp.revision {
                return Err(SetError::BadRevision);
            }
            if self.entries().take(index).any(|earlier| earlier.component.corresponds(&entry.component)) {
                return Err(SetError::Duplicate);
            }
        }
        if reader.rest().is_empty() { Ok(()) } else { Err(SetError::Trailing) }
    }

    /// The rank of the publisher.
    pub const fn rank(&self) -> u32 {
        self.rank
    }

    /// The stamp of the set.
    pub const fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// The number of entries.
    pub const fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether the set has no entry.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The entries, in the order in which they were written.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'a>> + use<'a> {
        let mut reader = Reader::new(self.entries);
        (0..self.count).map_while(move |_| read_entry(&mut reader).ok())
    }

    /// The entry of the component that corresponds to `component`. `None` if there is none.
    pub fn find(&self, component: &Component<'_>) -> Option<Entry<'a>> {
        self.entries().find(|entry| entry.component.corresponds(component))
    }
}

fn read_entry<'a>(reader: &mut Reader<'a>) -> Result<Entry<'a>, SetError> {
    let mut version = || Some(Version::new(reader.u16()?, reader.u16()?, reader.u16()?));
    let (mca, kind_version, version) = (|| Some((version()?, version()?, version()?)))().ok_or(SetError::Short)?;
    let mut lengths = || Some((reader.u8()?, reader.u8()?, reader.u32()?, reader.u32()?));
    let (kind, name, revision, data) = lengths().ok_or(SetError::Short)?;
    let mut text = |length: u8| {
        let bytes = reader.take(length as usize).ok_or(SetError::Short)?;
        core::str::from_utf8(bytes).map_err(|_| SetError::BadName)
    };
    let (kind, name) = (text(kind)?, text(name)?);
    let data = reader.take(data as usize).ok_or(SetError::Short)?;
    let component = Component { mca, kind, kind_version, name, version };
    if !component.is_valid() {
        return Err(SetError::BadName);
    }
    Ok(Entry { component, revision, data })
}

/// Writes a set into a buffer of the caller.
#[derive(Debug)]
pub struct SetWriter<'a> {
    header: &'a mut [u8; Set::HEADER],
    body: Writer<'a>,
    rank: u32,
    stamp: Stamp,
    count: u16,
}

impl<'a> SetWriter<'a> {
    /// Starts a set of `rank` in `into`. `None` if the header does not fit.
    pub fn new(into: &'a mut [u8], rank: u32, stamp: Stamp) -> Option<Self> {
        let (header, body) = into.split_first_chunk_mut()?;
        Some(Self { header, body: Writer::new(body), rank, stamp, count: 0 })
    }

    /// Adds an entry. The caller makes sure that no two entries correspond, and that no revision is larger than that of the set.
    ///
    /// # Errors
    /// [`NoRoom`] if the entry does not fit into the buffer, or its fields do not fit into the format. The set has not changed
    /// then, and may be finished.
    pub fn entry(&mut self, component: &Component<'_>, revision: u32, data: &[u8]) -> Result<(), NoRoom> {
        let needed = entry_size(component, data.len());
        let fits = self.count < Set::ENTRIES_MAX && component.is_valid() && needed <= self.body.left();
        let length = u32::try_from(data.len());
        let (true, Ok(length)) = (fits, length) else { return Err(NoRoom { needed }) };
        self.put(component, revision, length, data).ok_or(NoRoom { needed })?;
        self.count = self.count.saturating_add(1);
        Ok(())
    }

    fn put(&mut self, component: &Component<'_>, revision: u32, length: u32, data: &[u8]) -> Option<()> {
        for version in [component.mca, component.kind_version, component.version] {
            self.body.u16(version.major)?;
            self.body.u16(version.minor)?;
            self.body.u16(version.release)?;
        }
        self.body.u8(component.kind.len() as u8)?;
        self.body.u8(component.name.len() as u8)?;
        self.body.u32(revision)?;
        self.body.u32(length)?;
        self.body.put(component.kind.as_bytes())?;
        self.body.put(component.name.as_bytes())?;
        self.body.put(data)
    }

    /// Completes the header. Returns the length of the set in bytes.
    pub fn finish(self) -> usize {
        let length = Set::HEADER.saturating_add(self.body.written());
        let mut header = Writer::new(self.header);
        let _fits = (|| {
            header.put(&MAGIC)?;
            header.u16(FORMAT)?;
            header.u16(self.count)?;
            header.u32(self.rank)?;
            header.u32(self.stamp.incarnation)?;
            header.u32(self.stamp.revision)?;
            header.u32(length as u32)
        })();
        length
    }
}

/// The bytes that an entry takes in a set.
pub const fn entry_size(component: &Component<'_>, data: usize) -> usize {
    Set::ENTRY.saturating_add(component.kind.len()).saturating_add(component.name.len()).saturating_add(data)
}

/// An entry does not fit into its set.
#[derive(Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct NoRoom {
    /// Bytes that the entry takes.
    pub needed: usize,
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an entry of {} bytes does not fit into the set: use a larger buffer, or publish less", self.needed)
    }
}

impl core::error::Error for NoRoom {}

crate::debug_as_display!(NoRoom);

/// Why bytes are not a valid set. The sender of the bytes is at fault, except for [`Format`](Self::Format), where both sides
/// may be.
#[derive(Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum SetError {
    /// The bytes do not start with the mark of a set.
    NotASet,
    /// The publisher uses another version of the format.
    Format {
        /// The publisher's version.
        theirs: u16,
    },
    /// The bytes end too early.
    Short,
    /// There are bytes after the end.
    Trailing,
    /// More entries than a set may have.
    TooMany {
        /// The number of entries in its header.
        count: u16,
    },
    /// A name is empty, too long or not UTF-8.
    BadName,
    /// A revision is 0, or that of an entry is larger than that of the set.
    BadRevision,
    /// Two entries correspond.
    Duplicate,
}

impl fmt::Display for SetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotASet => "the bytes are not a modex set: run the same version on both sides",
            Self::Format { theirs } => {
                return write!(f, "the peer uses version {theirs} of the modex format, this side version {FORMAT}: use the same version on both sides");
            }
            Self::Short => "the peer's modex set is cut short: run the same version on both sides",
            Self::Trailing => "the peer's modex set has bytes after its end: run the same version on both sides",
            Self::TooMany { count } => {
                return write!(f, "the peer's modex set has {count} entries, and at most {} are allowed: run the same version on both sides", Set::ENTRIES_MAX);
            }
            Self::BadName => "the peer's modex set has a component name that is empty, too long or not UTF-8: run the same version on both sides",
            Self::BadRevision => "the peer's modex set has a revision that is 0 or too large: run the same version on both sides",
            Self::Duplicate => "the peer's modex set has two entries for one component: run the same version on both sides",
        })
    }
}

impl core::error::Error for SetError {}

crate::debug_as_display!(SetError);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const TCP: Component = Component {
        mca: Version::new(2, 1, 0),
        kind: "btl",
        kind_version: Version::new(3, 1, 0),
        name: "tcp",
        version: Version::new(5, 0, 0x1234),
    };

    const GOLDEN: &[u8] = b"TLMX\x01\0\x02\0\x04\x03\x02\x01\x01\0\0\0\x05\0\0\0\x5e\0\0\0\
        \x02\0\x01\0\0\0\x03\0\x01\0\0\0\x05\0\0\0\x34\x12\x03\x03\x05\0\0\0\x03\0\0\0btltcp\xaa\xbb\xcc\
        \x02\0\x01\0\0\0\x03\0\x01\0\0\0\x05\0\0\0\x34\x12\x03\x02\x01\0\0\0\0\0\0\0btlsm";

    fn write(entries: &[(Component, u32, &[u8])], into: &mut [u8]) -> Option<usize> {
        let stamp = Stamp { incarnation: 1, revision: 5 };
        let mut writer = SetWriter::new(into, 0x0102_0304, stamp)?;
        for (component, revision, data) in entries {
            writer.entry(component, *revision, data).ok()?;
        }
        Some(writer.finish())
    }

    #[test]
    fn x1_golden_bytes_are_the_same_on_every_machine() {
        let mut bytes = [0u8; 256];
        let sm = Component { name: "sm", ..TCP };
        let length = write(&[(TCP, 5, &[0xaa, 0xbb, 0xcc]), (sm, 1, &[])], &mut bytes).unwrap();
        assert_eq!(&bytes[..length], GOLDEN);

        let set = Set::parse(GOLDEN).unwrap();
        assert_eq!((set.rank(), set.len(), set.is_empty()), (0x0102_0304, 2, false));
        assert_eq!(set.stamp(), Stamp { incarnation: 1, revision: 5 });
        assert_eq!(set.find(&TCP).unwrap(), Entry { component: TCP, revision: 5, data: &[0xaa, 0xbb, 0xcc] });
        assert_eq!(set.find(&sm).unwrap().data, b"");
        assert_eq!(set.find(&Component { name: "udp", ..TCP }), None);
    }

    #[test]
    fn each_cut_and_each_extra_byte_is_refused() {
        for length in 0..GOLDEN.len() {
            assert_eq!(Set::parse(&GOLDEN[..length]), Err(SetError::Short), "{length}");
        }
        let mut longer = GOLDEN.to_vec();
        longer.push(0);
        assert_eq!(Set::parse(&longer), Err(SetError::Trailing));
        longer[20] += 1; // even if the length includes the byte, it is not an entry
        assert_eq!(Set::parse(&longer), Err(SetError::Trailing));
    }

    #[test]
    fn impossible_headers_and_entries_are_refused() {
        let with = |changes: &[(usize, u8)]| {
            let mut bytes = GOLDEN.to_vec();
            for (at, value) in changes {
                bytes[*at] = *value;
            }
            Set::parse(&bytes).err()
        };
        assert_eq!(with(&[(0, b'X')]), Some(SetError::NotASet));
        assert_eq!(with(&[(4, 2)]), Some(SetError::Format { theirs: 2 }));
        assert_eq!(with(&[(6, 1)]), Some(SetError::Trailing));
        assert_eq!(with(&[(6, 3)]), Some(SetError::Short));
        assert_eq!(with(&[(7, 2)]), Some(SetError::TooMany { count: 0x202 }));
        assert_eq!(with(&[(16, 0)]), Some(SetError::BadRevision));
        assert_eq!(with(&[(16, 4)]), Some(SetError::BadRevision));
        assert_eq!(with(&[(44, 0)]), Some(SetError::BadRevision));
        assert_eq!(with(&[(42, 0), (43, 6)]), Some(SetError::BadName));
        assert_eq!(with(&[(52, 0xff)]), Some(SetError::BadName));
        assert_eq!(with(&[(48, 0xff)]), Some(SetError::Short));
        let mut bytes = [0u8; 256];
        let newer = Component { version: Version::new(5, 0, 9), ..TCP };
        let length = write(&[(TCP, 1, &[]), (newer, 1, &[])], &mut bytes).unwrap();
        assert_eq!(Set::parse(&bytes[..length]), Err(SetError::Duplicate));
    }

    #[test]
    fn an_entry_that_does_not_fit_leaves_the_set_whole() {
        let mut bytes = [0u8; 24 + 34 + 3];
        assert!(SetWriter::new(&mut bytes[..23], 0, Stamp::default()).is_none());
        let mut writer = SetWriter::new(&mut bytes, 0, Stamp { incarnation: 0, revision: 1 }).unwrap();
        assert_eq!(writer.entry(&TCP, 1, &[0; 4]), Err(NoRoom { needed: 38 }));
        assert_eq!(writer.entry(&Component { name: "", ..TCP }, 1, &[]), Err(NoRoom { needed: 31 }));
        writer.entry(&TCP, 1, &[7; 3]).unwrap();
        assert_eq!(writer.finish(), 61);
        assert_eq!(Set::parse(&bytes).unwrap().find(&TCP).unwrap().data, [7; 3]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused_and_parsed_ones_write_back(
            changes in prop::collection::vec((0..GOLDEN.len(), any::<u8>()), 0..6),
            noise in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let _ = Set::parse(&noise);
            let mut bytes = GOLDEN.to_vec();
            for (at, value) in changes {
                bytes[at] = value;
            }
            if let Ok(set) = Set::parse(&bytes) {
                let mut back = [0u8; GOLDEN.len()];
                let mut writer = SetWriter::new(&mut back, set.rank(), set.stamp()).unwrap();
                for entry in set.entries().collect::<Vec<_>>() {
                    writer.entry(&entry.component, entry.revision, entry.data).unwrap();
                }
                prop_assert_eq!(writer.finish(), bytes.len());
                prop_assert_eq!(&back[..], &bytes[..]);
            }
        }
    }
}
