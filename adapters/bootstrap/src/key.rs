//! The job's secret.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The job key: 32 secret bytes that all ranks of a job and their launcher share. Its `Debug` does not show them.
///
/// ```
/// use towline_bootstrap::Key;
///
/// let key = Key::random()?;
/// assert_eq!(Key::from_hex(&key.to_hex()), Some(key.clone()));
/// assert_eq!(format!("{key:?}"), "Key(secret)");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; 32]);

impl Key {
    /// Makes a new key from the system's random number generator.
    ///
    /// # Errors
    /// The system's error, if it gives no random numbers.
    pub fn random() -> std::io::Result<Self> {
        let mut bytes = [0; 32];
        random(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// The key that consists of these bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The secret itself.
    pub const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Parses 64 hexadecimal digits. `None` for any other text.
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

    /// The key as 64 hexadecimal digits.
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The message authentication code (HMAC-SHA-256) over `parts`. The caller must give each part a fixed length,
    /// since the code does not mark where one part ends.
    pub(crate) fn mac(&self, parts: &[&[u8]]) -> [u8; 32] {
        self.mac_state(parts).finalize().into_bytes().into()
    }

    /// Checks a code in constant time. If `tag` is shorter than the code, only as many bytes as it has are compared.
    pub(crate) fn verify(&self, parts: &[&[u8]], tag: &[u8]) -> bool {
        self.mac_state(parts).verify_truncated_left(tag).is_ok()
    }

    fn mac_state(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        for part in parts {
            mac.update(part);
        }
        mac
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(secret)")
    }
}

/// Fills `bytes` with the system's random numbers.
pub(crate) fn random(bytes: &mut [u8]) -> std::io::Result<()> {
    getrandom::fill(bytes).map_err(std::io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_64_hexadecimal_digits_are_a_key() {
        let hex = "00ff".repeat(16);
        assert_eq!(Key::from_hex(&hex).unwrap().to_hex(), hex);
        for wrong in ["", &hex[1..], &format!("{hex}0"), &hex.replace('f', "g"), &hex.replace("ff", "é")] {
            assert_eq!(Key::from_hex(wrong), None);
        }
    }

    #[test]
    fn the_code_is_hmac_sha_256() {
        // RFC 4231, test case 1, with the key filled up with zeros, which HMAC does anyway.
        let mut key = [0; 32];
        key[..20].fill(0x0b);
        let key = Key::from_bytes(key);
        let code = key.mac(&[b"Hi ", b"There"]);
        assert_eq!(Key::from_bytes(code).to_hex(), "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
        assert!(key.verify(&[b"Hi There"], &code) && key.verify(&[b"Hi There"], &code[..16]));
        assert!(!key.verify(&[b"Hi there"], &code));
    }
}
