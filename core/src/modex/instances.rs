//! Several instances in one publication.
//!
//! The contract has `size` bytes and `count` instances, but none of its functions has a parameter for the count. So the count is
//! a part of the data here: components that publish data for several devices frame it with [`Instances`].
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | bytes of one instance, little-endian; 0 only if the count is 0 |
//! | 4 | 4 | number of instances, little-endian |
//! | 8 | size × count | the instances, one after another |

use core::fmt;

use super::bytes::{Reader, Writer};

/// Instances of equal size, which one component has published.
///
/// ```
/// use towline_core::modex::Instances;
///
/// let mut framed = [0u8; 16];
/// let length = Instances::frame(4, b"eth0eth1", &mut framed).unwrap();
/// let instances = Instances::parse(&framed[..length]).unwrap();
/// assert_eq!(instances.count(), 2);
/// assert_eq!(instances.get(1), Some(&b"eth1"[..]));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Instances<'a> {
    size: usize,
    data: &'a [u8],
}

impl<'a> Instances<'a> {
    /// Bytes before the first instance.
    pub const HEADER: usize = 8;

    /// Writes a header and `data`, which are instances of `size` bytes each, to `into`. Returns the number of bytes written:
    /// [`HEADER`](Self::HEADER) more than `data` has.
    ///
    /// # Errors
    /// [`InstancesError::Uneven`] if `data` is not a whole number of instances, [`InstancesError::NoRoom`] if `into` is too
    /// short.
    pub fn frame(size: u32, data: &[u8], into: &mut [u8]) -> Result<usize, InstancesError> {
        let uneven = InstancesError::Uneven { size, bytes: data.len() };
        let count = match data.len().checked_rem(size as usize) {
            None if data.is_empty() => 0,
            Some(0) => data.len().checked_div(size as usize).unwrap_or(0),
            _ => return Err(uneven),
        };
        let Ok(count) = u32::try_from(count) else { return Err(uneven) };
        let mut writer = Writer::new(into);
        let written = writer.u32(size).and_then(|()| writer.u32(count)).and_then(|()| writer.put(data));
        written.ok_or(InstancesError::NoRoom { needed: Self::HEADER.saturating_add(data.len()) })?;
        Ok(writer.written())
    }

    /// Reads instances that [`frame`](Self::frame) has written.
    ///
    /// # Errors
    /// [`InstancesError::Malformed`] if the bytes are anything else, or have even one byte too many.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, InstancesError> {
        let mut reader = Reader::new(bytes);
        let (size, count) = reader.u32().zip(reader.u32()).ok_or(InstancesError::Malformed)?;
        let data = reader.rest();
        let whole = (size as u64).checked_mul(count as u64) == Some(data.len() as u64);
        if !whole || (size == 0 && count != 0) {
            return Err(InstancesError::Malformed);
        }
        Ok(Self { size: size as usize, data })
    }

    /// Bytes of one instance.
    pub const fn size(&self) -> usize {
        self.size
    }

    /// The number of instances.
    pub fn count(&self) -> usize {
        self.data.len().checked_div(self.size).unwrap_or(0)
    }

    /// The instance with this index; `None` after the last.
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        let start = index.checked_mul(self.size)?;
        if self.size == 0 {
            return None;
        }
        self.data.get(start..)?.get(..self.size)
    }

    /// The instances, in order.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> {
        let this = *self;
        (0..this.count()).filter_map(move |index| this.get(index))
    }
}

/// Why instances could not be framed or read.
#[derive(Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum InstancesError {
    /// The data is not a whole number of instances: the caller's fault.
    Uneven {
        /// Bytes of one instance.
        size: u32,
        /// Bytes of data.
        bytes: usize,
    },
    /// The caller's buffer is too short.
    NoRoom {
        /// Bytes that are needed.
        needed: usize,
    },
    /// The bytes are not framed instances: the publisher's fault.
    Malformed,
}

impl fmt::Display for InstancesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uneven { size, bytes } => {
                write!(f, "{bytes} bytes are not a whole number of instances of {size} bytes: check the size")
            }
            Self::NoRoom { needed } => write!(f, "the framed instances need {needed} bytes: use a larger buffer"),
            Self::Malformed => {
                f.write_str("the peer's component did not publish framed instances: run the same version on both sides")
            }
        }
    }
}

impl core::error::Error for InstancesError {}

crate::debug_as_display!(InstancesError);

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn x6_instances_carry_their_size_and_count() {
        let mut framed = [0u8; 14];
        assert_eq!(Instances::frame(3, b"abcdef", &mut framed), Ok(14));
        assert_eq!(framed, *b"\x03\0\0\0\x02\0\0\0abcdef");
        let instances = Instances::parse(&framed).unwrap();
        assert_eq!((instances.size(), instances.count()), (3, 2));
        assert_eq!(instances.iter().collect::<Vec<_>>(), [b"abc", b"def"]);
        assert_eq!((instances.get(2), instances.get(usize::MAX)), (None, None));

        assert_eq!(Instances::frame(5, b"", &mut framed), Ok(8));
        assert_eq!(Instances::parse(&framed[..8]).unwrap().count(), 0);
        assert_eq!(Instances::frame(0, b"", &mut framed), Ok(8));
        assert_eq!(Instances::parse(&framed[..8]).unwrap().get(0), None);
    }

    #[test]
    fn x6_wrong_frames_are_refused() {
        let mut framed = [0u8; 14];
        assert_eq!(Instances::frame(4, b"abcdef", &mut framed), Err(InstancesError::Uneven { size: 4, bytes: 6 }));
        assert_eq!(Instances::frame(0, b"a", &mut framed), Err(InstancesError::Uneven { size: 0, bytes: 1 }));
        assert_eq!(Instances::frame(2, b"abcdefgh", &mut framed), Err(InstancesError::NoRoom { needed: 16 }));
        for wrong in [
            &b""[..],
            b"\x03\0\0\0\x02\0\0",
            b"\x03\0\0\0\x02\0\0\0abcde",
            b"\x03\0\0\0\x02\0\0\0abcdefg",
            b"\0\0\0\0\x02\0\0\0",
            b"\xff\xff\xff\xff\xff\xff\xff\xff",
        ] {
            assert_eq!(Instances::parse(wrong), Err(InstancesError::Malformed), "{wrong:?}");
        }
    }
}
