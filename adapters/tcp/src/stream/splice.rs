//! Sending long bodies without a copy in the kernel: the pages of a body are mapped into a pipe and moved on to the socket. So a
//! sender that computes the checksum of a body does not wait for a copy of it too.
//!
//! The socket then refers to the sender's memory until the kernel of the other host has acknowledged the bytes; within one host
//! until the bytes are read. So only bodies of `Rail::send_summed` are spliced. The page of the link (`core/src/link/README.md`)
//! describes the effect if such memory changes too early.
//!
//! All connections of a rail share one pipe with two descriptors, made on first use. It holds bytes of one connection at a time;
//! the bodies of other connections are copied meanwhile.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::counters::Counters;
use crate::system::socket::{self as sys, Transfer};

/// A pipe, and the bytes in it.
#[derive(Debug)]
pub(crate) struct SplicePipe {
    /// Size of the pipe in bytes; 0: no pipe is made.
    size: u32,
    /// Bodies of at least this many bytes are spliced.
    min_body: usize,
    /// The end to write to, and the end to read from.
    ends: Option<[OwnedFd; 2]>,
    /// The system refused a pipe, or splicing does not work here.
    refused: bool,
    /// Bytes in the pipe, and the token of the connection to which they belong.
    held: usize,
    owner: u64,
}

impl SplicePipe {
    pub(crate) const fn new(size: u32, min_body: u32) -> Self {
        Self { size, min_body: min_body as usize, ends: None, refused: false, held: 0, owner: 0 }
    }

    /// Bytes of a connection that are in the pipe.
    pub(crate) const fn holds(&self, token: u64) -> usize {
        if self.owner == token { self.held } else { 0 }
    }

    /// The number of bytes from which on a body of a connection is spliced, if it has a checksum; `usize::MAX` while the pipe is
    /// in use by another connection, or does not exist.
    pub(crate) const fn threshold(&self, token: u64) -> usize {
        if self.ends.is_none() || (self.held != 0 && self.owner != token) { usize::MAX } else { self.min_body }
    }

    /// Makes the pipe, if a body of `len` bytes is to be spliced and there is no pipe.
    pub(crate) fn prepare(&mut self, len: usize, counters: &mut Counters) {
        if self.size == 0 || len < self.min_body || self.ends.is_some() {
            return;
        }
        if !self.refused {
            match sys::pipe(self.size) {
                Ok(ends) => return self.ends = Some(ends),
                Err(error) => log::debug!("tcp: long bodies are copied, as the system refuses a pipe: {error}"),
            }
            self.refused = true;
        }
        counters.pipe_refused += 1;
    }

    /// Moves a part of the `len` bytes from `base` on to a socket. The bytes in the pipe are the first of them. `None`: splicing
    /// does not work here, and the bytes must be copied.
    ///
    /// # Safety
    /// The memory is readable for `len` bytes, and a receiver can tell whether the bytes have changed on their way.
    pub(crate) unsafe fn push(&mut self, token: u64, socket: RawFd, base: *mut u8, len: usize) -> Option<Transfer> {
        let [write, read] = self.ends.as_ref()?;
        if self.held == 0 {
            self.owner = token;
        }
        let size = self.size as usize;
        if self.held <= size / 2 && self.held < len {
            let more = (len - self.held).min(size - self.held);
            // SAFETY: the bytes are a part of those for which the caller vouches.
            match unsafe { sys::vmsplice(write.as_raw_fd(), base.wrapping_add(self.held), more) } {
                Transfer::Bytes(bytes) => self.held += bytes,
                _ if self.held != 0 => {} // the pipe holds bytes to go on with
                _ => {
                    self.refuse();
                    return None;
                }
            }
        }
        match sys::splice(read.as_raw_fd(), socket, self.held) {
            Some(Transfer::Bytes(bytes)) => {
                self.held -= bytes.min(self.held);
                Some(Transfer::Bytes(bytes))
            }
            Some(other) => Some(other),
            None => {
                self.refuse();
                None
            }
        }
    }

    /// Closes the pipe for good. The bytes in it were not sent, and are still in the sender's memory.
    fn refuse(&mut self) {
        (self.ends, self.held, self.refused) = (None, 0, true);
    }

    /// Gives up the descriptors of an empty pipe, as connections need them more.
    pub(crate) fn release_descriptors(&mut self) {
        if self.held == 0 {
            self.refuse();
        }
    }

    /// A connection has ended: its bytes in the pipe are dropped. As a descriptor is free now, a pipe may be made again.
    pub(crate) fn forget(&mut self, token: u64) {
        if self.holds(token) != 0 {
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

    /// The peer closes after a part of a body was sent. The next call raises a signal that would end this process; the signal is
    /// taken back. The result is the end of the connection, and the pipe serves other connections.
    #[test]
    fn a_peer_that_closes_in_the_middle_of_a_body_does_no_harm_to_others() {
        const LEN: usize = 256 * 1024;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || (TcpStream::connect(listener.local_addr().unwrap()).unwrap(), listener.accept().unwrap().0);
        let mut body = vec![7; LEN];
        // SAFETY: the handler is the default one of the system.
        let before = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        let mut pipe = SplicePipe::new(64 * 1024, 1);
        pipe.prepare(LEN, &mut Counters::default());
        let (ours, mut theirs) = connect();
        // SAFETY: the body lives to the end of the test, and does not change.
        let mut push = |pipe: &mut SplicePipe, socket: &TcpStream, token| unsafe {
            pipe.push(token, socket.as_raw_fd(), body.as_mut_ptr(), LEN).expect("splicing works here")
        };
        let Transfer::Bytes(part) = push(&mut pipe, &ours, 1) else { panic!("no room in the socket") };
        assert!(part < LEN, "{part}");
        let mut some = [0; 100];
        theirs.read_exact(&mut some).unwrap();
        // Unread bytes make the kernel send a reset.
        drop(theirs);
        let end = loop {
            match push(&mut pipe, &ours, 1) {
                Transfer::Bytes(_) | Transfer::WouldBlock => {}
                end => break end,
            }
        };
        assert!(matches!(end, Transfer::Broken(libc::ECONNRESET | libc::EPIPE)), "{end:?}");
        // The second call meets a broken pipe in any case.
        ours.shutdown(Shutdown::Write).ok();
        assert_eq!(push(&mut pipe, &ours, 1), Transfer::Broken(libc::EPIPE));
        // SAFETY: the set belongs to this function.
        let waits = unsafe {
            let mut waiting: libc::sigset_t = std::mem::zeroed();
            libc::sigpending(&raw mut waiting);
            libc::sigismember(&raw const waiting, libc::SIGPIPE)
        };
        assert_eq!(waits, 0, "a signal is still pending");
        pipe.forget(1);
        pipe.prepare(LEN, &mut Counters::default());
        let (ours, mut theirs) = connect();
        assert!(matches!(push(&mut pipe, &ours, 2), Transfer::Bytes(_)));
        theirs.read_exact(&mut some).unwrap();
        assert_eq!(some, [7; 100]);
        // SAFETY: restores the handler from before.
        unsafe { libc::signal(libc::SIGPIPE, before) };
    }
}
