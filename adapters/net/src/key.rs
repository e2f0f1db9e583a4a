//! The secret of a job.

use std::fmt;
use std::io;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroize;

use crate::random;

/// 32 secret bytes that all ranks of a job and their launcher share. A peer that does not know the key is not let in.
///
/// The bytes are overwritten with zeros when the value is dropped, and `Debug` does not show them. Keys of sessions, which are
/// derived from the job's key, have the same type.
///
/// ```
/// use towline_net::JobKey;
///
/// let key = JobKey::random()?;
/// assert_eq!(JobKey::from_hex(&key.to_hex()), Some(key.clone()));
/// assert_eq!(format!("{key:?}"), "JobKey(secret)");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct JobKey([u8; 32]);

impl Drop for JobKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl PartialEq for JobKey {
    /// Takes the same time for any two keys.
    fn eq(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).fold(0, |differ, (one, other)| differ | (one ^ other)) == 0
    }
}

impl Eq for JobKey {}

impl JobKey {
    /// The key with these bytes. They should come from a random generator, once per job.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// A new key from the system's random bytes.
    ///
    /// # Errors
    /// The system's error, where it has no random bytes to give.
    pub fn random() -> io::Result<Self> {
        random::bytes().map(Self)
    }

    /// The key that 64 hexadecimal digits describe; `None` for any other text.
    pub fn from_hex(digits: &str) -> Option<Self> {
        let digits = digits.as_bytes();
        let mut bytes = [0; 32];
        if digits.len() != 64 {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |digit: u8| char::from(digit).to_digit(16);
            *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
        }
        Some(Self(bytes))
    }

    /// The key as 64 hexadecimal digits. They are as secret as the key.
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The secret bytes, for example for a [handshake](towline_crypt::Handshake).
    pub const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// HMAC-SHA256 under this key over a label, which names the purpose of the proof, and then over these parts.
    ///
    /// ```
    /// use towline_net::JobKey;
    ///
    /// let (key, label) = (JobKey::new([7; 32]), b"towline  example");
    /// let proof = key.prove(label, &[b"sender, ", b"receiver"]);
    /// assert!(key.proves(label, &[b"sender, receiver"], &proof));
    /// assert!(!key.proves(b"towline  another", &[b"sender, receiver"], &proof));
    /// ```
    pub fn prove(&self, label: &[u8; 16], parts: &[&[u8]]) -> [u8; 32] {
        let mut mac = self.state(&[label]);
        parts.iter().for_each(|part| mac.update(part));
        mac.finalize().into_bytes().into()
    }

    /// Whether `proof` is the result of [`prove`](Self::prove). Takes the same time for any wrong proof.
    pub fn proves(&self, label: &[u8; 16], parts: &[&[u8]], proof: &[u8; 32]) -> bool {
        let mut mac = self.state(&[label]);
        parts.iter().for_each(|part| mac.update(part));
        mac.verify_slice(proof).is_ok()
    }

    /// HMAC-SHA256 under this key over some parts, one after the other. The code does not show where a part ends, so a caller
    /// with parts of variable length must include their lengths.
    pub fn mac(&self, parts: &[&[u8]]) -> [u8; 32] {
        self.state(parts).finalize().into_bytes().into()
    }

    /// Whether `tag` is the [code](Self::mac) of these parts, or the first bytes of that code. Takes the same time for any
    /// wrong tag of the same length. An empty tag is wrong.
    pub fn verify(&self, parts: &[&[u8]], tag: &[u8]) -> bool {
        self.state(parts).verify_truncated_left(tag).is_ok()
    }

    fn state(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        // HMAC pads a short key with zeros to a block (RFC 2104).
        let mut block = [0; 64];
        block[..32].copy_from_slice(&self.0);
        let mut mac = Hmac::<Sha256>::new(&block.into());
        block.zeroize();
        parts.iter().for_each(|part| mac.update(part));
        mac
    }
}

impl fmt::Debug for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobKey(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_64_hexadecimal_digits_are_a_key() {
        let hex = "00ff".repeat(16);
        assert_eq!(JobKey::from_hex(&hex).unwrap().to_hex(), hex);
        for wrong in ["", &hex[1..], &format!("{hex}0"), &hex.replace('f', "g"), &hex.replace("ff", "é")] {
            assert_eq!(JobKey::from_hex(wrong), None);
        }
    }

    #[test]
    fn the_code_is_hmac_sha_256() {
        // RFC 4231, test case 1, with the key filled up with zeros, which HMAC does anyway.
        let mut key = [0; 32];
        key[..20].fill(0x0b);
        let key = JobKey::new(key);
        let code = key.mac(&[b"Hi ", b"There"]);
        assert_eq!(JobKey::new(code).to_hex(), "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
        assert!(key.verify(&[b"Hi There"], &code) && key.verify(&[b"Hi There"], &code[..16]));
        assert!(!key.verify(&[b"Hi there"], &code) && !key.verify(&[b"Hi There"], &[]));
    }

    #[test]
    fn keys_are_equal_if_all_their_bytes_are() {
        assert_eq!(JobKey::new([7; 32]), JobKey::new([7; 32]));
        for at in 0..32 {
            let mut bytes = [7; 32];
            bytes[at] ^= 1;
            assert_ne!(JobKey::new(bytes), JobKey::new([7; 32]), "byte {at}");
        }
    }
}
