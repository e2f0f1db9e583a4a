//! The layout of a rail's registered memory.

use super::resource::Buffer;
use crate::sizes::{BufferSizes, GRH_BYTES, HELLO_RECEIVE_BUFFERS, HELLO_SEND_BUFFERS};
use crate::wire::hello;

/// An array of buffers of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BufferArray {
    start: usize,
    stride: usize,
    count: u32,
}

impl BufferArray {
    /// Offset in bytes of buffer `index`; `None` where there is none.
    #[inline]
    pub const fn at(&self, index: u32) -> Option<usize> {
        if index < self.count { Some(self.start + index as usize * self.stride) } else { None }
    }

    /// How many buffers there are.
    pub const fn count(&self) -> u32 {
        self.count
    }

    #[cfg(test)]
    const fn end(&self) -> usize {
        self.start + self.count as usize * self.stride
    }
}

/// The layout of all buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    pub receive: BufferArray,
    pub eager: BufferArray,
    pub bulk: BufferArray,
    pub hello_receive: BufferArray,
    pub hello_send: BufferArray,
    /// One byte: the target of the read that follows a put. Its value is not used.
    pub read_back: BufferArray,
    /// Length of all in bytes.
    pub bytes: usize,
}

impl Layout {
    /// Offset in bytes of a send buffer.
    #[inline]
    pub const fn buffer(&self, buffer: Buffer) -> Option<usize> {
        match buffer {
            Buffer::Eager(index) => self.eager.at(index),
            Buffer::Bulk(index) => self.bulk.at(index),
        }
    }

    /// The layout for buffers of these sizes.
    pub const fn of(sizes: &BufferSizes) -> Self {
        let mut bytes = 0;
        let receive = array(&mut bytes, sizes.receive, sizes.frame_bytes as usize);
        let eager = array(&mut bytes, sizes.eager, sizes.short_bytes as usize);
        let bulk = array(&mut bytes, sizes.bulk, sizes.frame_bytes as usize);
        let hello_receive = array(&mut bytes, HELLO_RECEIVE_BUFFERS, GRH_BYTES + hello::BYTES);
        let hello_send = array(&mut bytes, HELLO_SEND_BUFFERS, hello::BYTES);
        let read_back = array(&mut bytes, 1, 1);
        Self { receive, eager, bulk, hello_receive, hello_send, read_back, bytes }
    }
}

/// Appends an array. Buffers do not share cache lines.
const fn array(bytes: &mut usize, count: u32, each: usize) -> BufferArray {
    let (start, stride) = (*bytes, each.next_multiple_of(64));
    *bytes += count as usize * stride;
    BufferArray { start, stride, count }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_do_not_overlap_and_buffers_are_long_enough() {
        let sizes = BufferSizes { receive: 128, eager: 256, bulk: 64, short_bytes: 700, frame_bytes: 9000 };
        let it = Layout::of(&sizes);
        let arrays = [it.receive, it.eager, it.bulk, it.hello_receive, it.hello_send, it.read_back];
        for pair in arrays.windows(2) {
            assert_eq!(pair[0].end(), pair[1].start);
        }
        assert_eq!(it.read_back.end(), it.bytes);
        for (array, each) in arrays.into_iter().zip([9000, 700, 9000, 136, 96, 1]) {
            assert!(array.stride >= each && array.start % 64 == 0);
            assert_eq!(array.at(array.count), None);
            assert_eq!(array.at(array.count - 1), Some(array.end() - array.stride));
        }
    }
}
