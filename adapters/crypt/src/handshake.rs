//! The handshake in which two ends agree on keys, and the encryption with these keys.

use std::fmt;

use snow::{Builder, HandshakeState, StatelessTransportState};

/// Bytes of each handshake message, which consists of a public key and an authentication tag.
pub const MESSAGE: usize = 48;
/// Bytes of the authentication tag. Sealed data is longer than plain data by this number of bytes.
pub const TAG: usize = 16;

const PATTERN: &str = "Noise_NNpsk0_25519_AESGCM_SHA256";
/// All keys are derived from this text too, so that no other protocol has the same keys.
const PROLOGUE: &[u8] = b"towline rail 1";

/// Number of seals in one direction under one key. This is far below the limit of AES-GCM (2^24.5 records of the greatest
/// length, RFC 8446).
const REKEY: u64 = 1 << 22;

/// The initiator's side of a handshake that waits for the answer.
pub struct Handshake(Box<HandshakeState>);

/// The handshake cannot begin, since the system provides no random bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NoHandshake;

/// The data was not sealed by the other end, or was changed on the way.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Forged;

impl fmt::Display for NoHandshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no keys can be generated, since the system provides no random bytes")
    }
}

impl fmt::Display for Forged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the data is forged, or was changed on the way")
    }
}

impl std::error::Error for NoHandshake {}

/// The text of [`Display`](std::fmt::Display), since `main` prints an error this way.
impl std::fmt::Debug for NoHandshake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}
impl std::error::Error for Forged {}

/// The text of [`Display`](std::fmt::Display), since `main` prints an error this way.
impl std::fmt::Debug for Forged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handshake(secret)")
    }
}

fn builder(key: &[u8; 32]) -> Result<Builder<'_>, snow::Error> {
    Builder::new(PATTERN.parse()?).psk(0, key)?.prologue(PROLOGUE)
}

impl Handshake {
    /// Begins a handshake with the job key. Returns the message to send, too.
    ///
    /// # Errors
    /// [`NoHandshake`] if the system provides no random bytes.
    ///
    /// ```
    /// use towline_crypt::Handshake;
    ///
    /// let key = [7; 32];
    /// let (handshake, question) = Handshake::begin(&key).unwrap();
    /// let (mut right, answer) = Handshake::answer(&key, &question).unwrap();
    /// let mut left = handshake.finish(&answer).unwrap();
    ///
    /// let mut sealed = [0; 21];
    /// assert_eq!(left.seal(b"hello", &mut sealed), 21);
    /// let mut open = [0; 21]; // as long as the sealed data
    /// assert_eq!(right.open(&sealed, &mut open), Ok(5));
    /// assert_eq!(&open[..5], b"hello");
    /// assert!(right.open(&sealed, &mut open).is_err(), "a replay");
    /// assert!(Handshake::answer(&[8; 32], &question).is_err(), "the key of another job");
    /// ```
    pub fn begin(key: &[u8; 32]) -> Result<(Self, [u8; MESSAGE]), NoHandshake> {
        let mut message = [0; MESSAGE];
        let mut state = builder(key).and_then(Builder::build_initiator).map_err(|_| NoHandshake)?;
        match state.write_message(&[], &mut message) {
            Ok(MESSAGE) => Ok((Self(Box::new(state)), message)),
            _ => Err(NoHandshake),
        }
    }

    /// Answers a handshake. Returns the keys and the message to send back.
    ///
    /// # Errors
    /// [`Forged`] if the other end does not hold the job key.
    pub fn answer(key: &[u8; 32], question: &[u8; MESSAGE]) -> Result<(Cipher, [u8; MESSAGE]), Forged> {
        let mut message = [0; MESSAGE];
        let mut state = builder(key).and_then(Builder::build_responder).map_err(|_| Forged)?;
        state.read_message(question, &mut []).map_err(|_| Forged)?;
        match state.write_message(&[], &mut message) {
            Ok(MESSAGE) => Ok((Cipher::new(state)?, message)),
            _ => Err(Forged),
        }
    }

    /// Completes the handshake with the answer. Returns the keys.
    ///
    /// # Errors
    /// [`Forged`] if the message is not an answer to this handshake.
    pub fn finish(mut self, answer: &[u8; MESSAGE]) -> Result<Cipher, Forged> {
        self.0.read_message(answer, &mut []).map_err(|_| Forged)?;
        Cipher::new(*self.0)
    }
}

/// The keys of a connection, one for each direction.
///
/// For a stream, [`seal`](Self::seal) and [`open`](Self::open) number the records and change the keys when necessary. They
/// need `&mut self`, so one thread at a time can call them. For datagrams, which arrive in any order, the caller gives the
/// number to [`seal_as`](Self::seal_as) and [`open_as`](Self::open_as).
pub struct Cipher {
    keys: Box<StatelessTransportState>,
    sealed: u64,
    opened: u64,
    rekey: u64,
}

impl fmt::Debug for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cipher").field("sealed", &self.sealed).field("opened", &self.opened).finish_non_exhaustive()
    }
}

impl Cipher {
    fn new(state: HandshakeState) -> Result<Self, Forged> {
        let keys = Box::new(state.into_stateless_transport_mode().map_err(|_| Forged)?);
        Ok(Self { keys, sealed: 0, opened: 0, rekey: REKEY })
    }

    /// Changes the keys after `seals` seals. Both ends must use the same number. For tests.
    #[must_use]
    pub fn rekeyed_every(mut self, seals: u64) -> Self {
        self.rekey = seals.max(1);
        self
    }

    /// Seals the next bytes of a stream. Returns the sealed length, which is [`TAG`] more than the plain length. Returns 0 if
    /// `out` is too short or `plain` has more than 65,519 bytes.
    pub fn seal(&mut self, plain: &[u8], out: &mut [u8]) -> usize {
        if self.sealed != 0 && self.sealed.is_multiple_of(self.rekey) {
            self.keys.rekey_outgoing();
        }
        let sealed = self.seal_as(self.sealed, plain, out);
        self.sealed += u64::from(sealed != 0);
        sealed
    }

    /// Opens the next sealed bytes of a stream. Returns the number of plain bytes. After an error the stream cannot be used any
    /// more.
    ///
    /// # Errors
    /// [`Forged`] if the bytes were not sealed by the other end, or are not the next ones.
    pub fn open(&mut self, sealed: &[u8], out: &mut [u8]) -> Result<usize, Forged> {
        if self.opened != 0 && self.opened.is_multiple_of(self.rekey) {
            self.keys.rekey_incoming();
        }
        let opened = self.open_as(self.opened, sealed, out)?;
        self.opened += 1;
        Ok(opened)
    }

    /// Like [`seal`](Self::seal), with a number that must never have been used before.
    pub fn seal_as(&self, number: u64, plain: &[u8], out: &mut [u8]) -> usize {
        self.keys.write_message(number, plain, out).unwrap_or(0)
    }

    /// Opens data that was sealed with a number. Returns the number of plain bytes.
    ///
    /// # Errors
    /// [`Forged`] if the other end did not seal the data with this number, or if `out` is shorter than the sealed data, which is
    /// copied there and then decrypted in place.
    pub fn open_as(&self, number: u64, sealed: &[u8], out: &mut [u8]) -> Result<usize, Forged> {
        if sealed.len() < TAG || out.len() < sealed.len() {
            return Err(Forged);
        }
        self.keys.read_message(number, sealed, out).map_err(|_| Forged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Cipher, Cipher) {
        let (handshake, question) = Handshake::begin(&[7; 32]).unwrap();
        let (right, answer) = Handshake::answer(&[7; 32], &question).unwrap();
        (handshake.finish(&answer).unwrap(), right)
    }

    #[test]
    fn any_changed_bit_of_the_handshake_is_detected() {
        let (_, question) = Handshake::begin(&[7; 32]).unwrap();
        for bit in 0..MESSAGE * 8 {
            let mut changed = question;
            changed[bit / 8] ^= 1 << (bit % 8);
            let outcome = Handshake::answer(&[7; 32], &changed);
            // X25519 ignores the highest bit of a public key, but the keys are derived from it as well.
            assert!(outcome.is_err(), "bit {bit}");
        }
        let (handshake, question) = Handshake::begin(&[7; 32]).unwrap();
        let (_, mut answer) = Handshake::answer(&[7; 32], &question).unwrap();
        answer[40] ^= 1;
        assert!(handshake.finish(&answer).is_err());
    }

    #[test]
    fn each_connection_and_each_direction_has_its_own_keys() {
        let ((mut left, _), (_, mut other)) = (pair(), pair());
        let (mut sealed, mut open) = ([0; 24], [0; 24]);
        left.seal(b"of one", &mut sealed);
        assert!(other.open(&sealed[..22], &mut open).is_err());
        let (mut left, right) = pair();
        left.seal(b"of one", &mut sealed);
        assert!(left.open(&sealed[..22], &mut open).is_err(), "reflected");
        assert!(right.open_as(0, &sealed[..22], &mut open).is_ok());
        assert!(right.open_as(1, &sealed[..22], &mut open).is_err(), "as another number");
    }

    #[test]
    fn keys_change_in_time_at_both_ends() {
        let (left, right) = pair();
        let (mut left, mut right) = (left.rekeyed_every(3), right.rekeyed_every(3));
        let (_, stale) = pair();
        drop(stale);
        let (mut sealed, mut open) = ([0; 21], [0; 21]);
        for round in 0..20u8 {
            assert_eq!(left.seal(&[round; 5], &mut sealed), 21);
            assert_eq!(right.open(&sealed, &mut open), Ok(5));
            assert_eq!(open[..5], [round; 5]);
        }
        // An end that does not change its keys cannot open the fourth message.
        let (left, mut right) = pair();
        let mut left = left.rekeyed_every(3);
        let opened: Vec<bool> = (0..5u8)
            .map(|round| {
                left.seal(&[round; 5], &mut sealed);
                right.open(&sealed, &mut open).is_ok()
            })
            .collect();
        assert_eq!(opened, [true, true, true, false, false]);
    }

    #[test]
    fn short_buffers_cause_no_panic() {
        let (mut left, mut right) = pair();
        assert_eq!(left.seal(&[0; 10], &mut [0; 25]), 0);
        assert_eq!(left.seal(&[0; 65_520], &mut [0; 70_000]), 0);
        for len in 0..20 {
            assert!(right.open(&vec![0; len], &mut [0; 1]).is_err());
        }
        assert!(right.open(&[0; 70_000], &mut vec![0; 70_000]).is_err());
    }
}
