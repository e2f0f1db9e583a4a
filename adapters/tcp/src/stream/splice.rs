//! The pipe by which long bodies leave without being copied: the kernel takes the pages that they lie in, and moves them to
//! the socket, so whoever sums a body need not wait for its copy as well.
//!
//! What has left this way is still the sender's memory, until the other host's kernel has acknowledged it; where the two are
//! one, until it is read there. So it is for bodies alone that come by `Rail::send_summed`: `ARCHITECTURE.md` of the core
//! says what becomes of memory that changes too early.
//!
//! One pipe for all connections of a rail, made on first use, which takes two descriptors. It holds bytes of one connection at
//! a time; what another one has to send meanwhile is copied.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::counters::Counters;
use crate::system::socket::{self as sys, Moved};

/// A pipe, and what is in it.
#[derive(Debug)]
pub(crate) struct Pipe {
    /// Bytes to ask for; 0: there is to be none.
    wanted: u32,
    /// Bodies from this size on are worth it.
    from: usize,
    /// Where to write and where to read.
    ends: Option<[OwnedFd; 2]>,
    /// None was to be had, or it does not work here.
    refused: bool,
    /// Bytes in it, and the word of the connection that they are of.
    held: usize,
    owner: u64,
}

impl Pipe {
    pub(crate) const fn new(wanted: u32, from: u32) -> Self {
        Self { wanted, from: from as usize, ends: None, refused: false, held: 0, owner: 0 }
    }

    /// Bytes in it of a connection.
    pub(crate) const fn holds(&self, word: u64) -> usize {
        if self.owner == word { self.held } else { 0 }
    }

    /// From how many bytes on a summed body of a connection goes this way; none where it is in use, or not to be had.
    pub(crate) const fn from(&self, word: u64) -> usize {
        if self.ends.is_none() || (self.held != 0 && self.owner != word) { usize::MAX } else { self.from }
    }

    /// Makes the pipe, if a body of so many bytes is worth it and there is none.
    pub(crate) fn prepare(&mut self, len: usize, counters: &mut Counters) {
        if self.wanted == 0 || len < self.from || self.ends.is_some() {
            return;
        }
        if !self.refused {
            match sys::pipe(self.wanted) {
                Ok(ends) => return self.ends = Some(ends),
                Err(error) => log::debug!("tcp: long bodies are copied: no pipe: {error}"),
            }
            self.refused = true;
        }
        counters.pipe_refused += 1;
    }

    /// Moves some of the `len` bytes from `base` on to a socket, of which those in the pipe are the first. `None`: it does not
    /// work; they are to be copied.
    ///
    /// # Safety
    /// The memory is readable for `len` bytes, and whoever gets to read what has become of it knows how to tell.
    pub(crate) unsafe fn push(&mut self, word: u64, socket: RawFd, base: *mut u8, len: usize) -> Option<Moved> {
        let [write, read] = self.ends.as_ref()?;
        if self.held == 0 {
            self.owner = word;
        }
        let room = self.wanted as usize;
        if self.held <= room / 2 && self.held < len {
            let more = (len - self.held).min(room - self.held);
            // SAFETY: a part of what the caller vouches for.
            match unsafe { sys::give_pages(write.as_raw_fd(), base.wrapping_add(self.held), more) } {
                Moved::Bytes(bytes) => self.held += bytes,
                _ if self.held != 0 => {} // there is enough to go on with
                _ => {
                    self.refuse();
                    return None;
                }
            }
        }
        match sys::move_pages(read.as_raw_fd(), socket, self.held) {
            Some(Moved::Bytes(bytes)) => {
                self.held -= bytes.min(self.held);
                Some(Moved::Bytes(bytes))
            }
            Some(other) => Some(other),
            None => {
                self.refuse();
                None
            }
        }
    }

    /// It is not used any more. What is in it has not left, and lies where it lay.
    fn refuse(&mut self) {
        (self.ends, self.held, self.refused) = (None, 0, true);
    }

    /// Descriptors have run out: connections need them more.
    pub(crate) fn make_room(&mut self) {
        if self.held == 0 {
            self.refuse();
        }
    }

    /// A connection has ended: what it has in the pipe goes with it. As there are descriptors now, a pipe may be had.
    pub(crate) fn forget(&mut self, word: u64) {
        if self.holds(word) != 0 {
            (self.ends, self.held) = (None, 0);
        }
        self.refused = false;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{Shutdown, TcpListener, TcpStream};

    use super::*;

    /// The peer goes when a part of a body has left: the next call raises a signal that would end this process, which is taken back.
    /// What is told is the connection's end; the pipe goes on for others.
    #[test]
    fn a_peer_that_goes_after_a_part_of_a_body_has_left_ends_nobody_else() {
        const LEN: usize = 256 * 1024;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || (TcpStream::connect(listener.local_addr().unwrap()).unwrap(), listener.accept().unwrap().0);
        let mut body = vec![7; LEN];
        // SAFETY: what the system does of itself.
        let before = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        let mut pipe = Pipe::new(64 * 1024, 1);
        pipe.prepare(LEN, &mut Counters::default());
        let (ours, mut theirs) = connect();
        // SAFETY: the body stays to the end, and nobody minds what is read of it.
        let mut push = |pipe: &mut Pipe, socket: &TcpStream, word| unsafe {
            pipe.push(word, socket.as_raw_fd(), body.as_mut_ptr(), LEN).expect("it works here")
        };
        let Moved::Bytes(part) = push(&mut pipe, &ours, 1) else { panic!("there is room") };
        assert!(part < LEN, "{part}");
        let mut some = [0; 100];
        theirs.read_exact(&mut some).unwrap();
        // Unread bytes make the end of the stream a bad one.
        drop(theirs);
        let end = loop {
            match push(&mut pipe, &ours, 1) {
                Moved::Bytes(_) | Moved::Nothing => {}
                end => break end,
            }
        };
        assert!(matches!(end, Moved::Broken(libc::ECONNRESET | libc::EPIPE)), "{end:?}");
        // Once more, now for certain on a broken pipe.
        ours.shutdown(Shutdown::Write).ok();
        assert_eq!(push(&mut pipe, &ours, 1), Moved::Broken(libc::EPIPE));
        // SAFETY: sets of this function's own.
        let waits = unsafe {
            let mut waiting: libc::sigset_t = std::mem::zeroed();
            libc::sigpending(&raw mut waiting);
            libc::sigismember(&raw const waiting, libc::SIGPIPE)
        };
        assert_eq!(waits, 0, "no signal is left behind");
        pipe.forget(1);
        pipe.prepare(LEN, &mut Counters::default());
        let (ours, mut theirs) = connect();
        assert!(matches!(push(&mut pipe, &ours, 2), Moved::Bytes(_)));
        theirs.read_exact(&mut some).unwrap();
        assert_eq!(some, [7; 100]);
        // SAFETY: as it was.
        unsafe { libc::signal(libc::SIGPIPE, before) };
    }
}
