//! Input to a TCP rail from processes without the key: cards, hellos, verdicts and prefixes of frames.

use towline_core::rail::HEAD;
use towline_net::JobKey;
use towline_net::card::Card;
use towline_tcp::framing::{self, Announced, MAX_FRAME, PREFIX};
use towline_tcp::hello::{HELLO, Hello, PROOF, Role, Transcript, VERDICT};

/// Runs one input with each parser. Accepted input must be encoded to the same bytes, and no proof that was made without the
/// key may be accepted.
pub fn run(data: &[u8]) {
    if let Ok(card) = Card::decode(data) {
        assert_eq!(Card::decode(&card.encode()), Ok(card));
    }
    if let Some(hello) = data.first_chunk::<HELLO>()
        && let Ok(read) = Hello::decode(hello)
    {
        assert_eq!(read.encode(), *hello);
    }
    if let Some(prefix) = data.first_chunk::<PREFIX>()
        && let Some(Announced::Frame { len, tag, header }) = framing::decode(*prefix)
    {
        assert!(len <= MAX_FRAME && usize::from(header) <= HEAD && u32::from(header) <= len);
        assert_eq!(framing::encode(len, tag, header), *prefix);
    }
    let (mut initiator, mut acceptor) = ([0; HELLO], [0; HELLO]);
    for (at, byte) in data.iter().enumerate().take(2 * HELLO) {
        let hello = if at < HELLO { &mut initiator } else { &mut acceptor };
        hello[at % HELLO] = *byte;
    }
    let (transcript, key) = (Transcript { initiator, acceptor }, JobKey::new([0x5a; 32]));
    if let Some(proof) = data.last_chunk::<PROOF>() {
        assert!(!transcript.proves(&key, Role::Initiator, proof) && !transcript.proves(&key, Role::Acceptor, proof));
    }
    if let Some(verdict) = data.last_chunk::<VERDICT>() {
        assert_eq!(transcript.read_verdict(&key, verdict), None);
    }
}
