//! A ring of bytes in which each frame is contiguous.

use crate::stream::block::Block;

/// Bytes in a ring. An empty ring starts over at its first byte, so that light traffic stays in few cache lines.
#[derive(Debug)]
pub(crate) struct Ring {
    bytes: Block,
    head: u32,
    tail: u32,
    frames: u32,
}

impl Ring {
    pub(crate) fn new(len: usize) -> Self {
        Self { bytes: Block::new(len), head: 0, tail: 0, frames: 0 }
    }

    /// Its size, in bytes.
    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The address of the byte at `start`.
    #[inline]
    pub(crate) fn at(&self, start: u32) -> *mut u8 {
        self.bytes.at(start as usize)
    }

    /// Free bytes for a frame of `len` bytes: where they start, and their address. They are not taken yet.
    #[inline]
    pub(crate) fn room(&mut self, len: usize) -> Option<(u32, *mut u8)> {
        if self.frames == 0 {
            (self.head, self.tail) = (0, 0);
        }
        let (head, tail) = (self.head as usize, self.tail as usize);
        let start = if tail >= head {
            if self.bytes.len() - tail >= len {
                tail
            } else if head > len {
                0
            } else {
                return None;
            }
        } else if head - tail > len {
            tail
        } else {
            return None;
        };
        Some((start as u32, self.at(start as u32)))
    }

    /// Takes the bytes that `room` returned.
    #[inline]
    pub(crate) fn take(&mut self, start: u32, len: u32) {
        self.tail = start + len;
        self.frames += 1;
    }

    /// Frees the bytes of the oldest frame.
    #[inline]
    pub(crate) fn free(&mut self, start: u32, len: u32) {
        self.head = start + len;
        self.frames -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    #[test]
    fn a_ring_gives_each_frame_one_run_and_never_the_same_byte_twice() {
        let mut ring = Ring::new(100);
        let mut live: VecDeque<(u32, u32)> = VecDeque::new();
        let mut seed = 7u32;
        for _ in 0..10_000 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let len = 1 + (seed >> 16) % 50;
            match ring.room(len as usize) {
                Some((start, _)) => {
                    assert!(start + len <= 100);
                    assert!(live.iter().all(|(at, of)| start + len <= *at || at + of <= start), "overlap");
                    ring.take(start, len);
                    live.push_back((start, len));
                }
                None => {
                    let (start, len) = live.pop_front().expect("an empty ring has room for half of it");
                    ring.free(start, len);
                }
            }
        }
    }
}
