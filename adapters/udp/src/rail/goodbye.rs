//! Good-byes that may have been lost: who goes on to send to an end that has forgotten it is told once more.
//!
//! Else it might wait for ever for a process that is there, and whose host answers for it.

use socket2::SockAddr;
use towline_core::time::{Duration, Instant};

use crate::datagram::{PREFIX, SEALED};
use crate::rail::Rail;

/// It is not said more often, whoever asks for it.
const INTERVAL: Duration = Duration::from_millis(100);

/// The good-bye of a session: as true as long as this end does not know the peer again, whoever repeats it.
#[derive(Debug)]
pub(crate) struct LastWord {
    pub(crate) rank: u32,
    pub(crate) remote: SockAddr,
    pub(crate) bytes: [u8; PREFIX + SEALED],
    pub(crate) len: usize,
    pub(crate) said: Instant,
}

impl Rail {
    /// A peer that had this endpoint is forgotten.
    pub(crate) fn keep_last_word(&mut self, endpoint: u32, word: LastWord) {
        let at = endpoint as usize;
        if at >= self.last_words.len() {
            self.last_words.resize_with(at + 1, || None);
        }
        self.last_words[at] = Some(word);
    }

    /// A rank is known again, by what it says from now on.
    pub(crate) fn drop_last_words(&mut self, rank: u32) {
        for word in &mut self.last_words {
            word.take_if(|word| word.rank == rank);
        }
    }

    /// Something came of no session that there is, to this endpoint.
    #[cold]
    pub(crate) fn say_last_word(&mut self, endpoint: u32) {
        let now = self.now;
        let word = self.last_words.get_mut(endpoint as usize).and_then(Option::as_mut);
        let Some(word) = word.filter(|word| now >= word.said + INTERVAL) else { return };
        word.said = now;
        let (bytes, len, remote) = (word.bytes, word.len, word.remote.clone());
        self.send_alone(&bytes[..len], &remote);
        self.counters.byes_repeated += 1;
    }
}
