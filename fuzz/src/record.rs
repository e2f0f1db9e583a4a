//! A stream of sealed records, and sealed datagrams. An attacker without the key changes them on the network.

use std::sync::LazyLock;

use towline_crypt::record::{self, PLAIN, Record, WHOLE};
use towline_crypt::{Cipher, Handshake, MESSAGE, ReplayWindow, TAG};

const KEY: [u8; 32] = [0x5a; 32];

/// The first message of a handshake. An input may contain it.
static QUESTION: LazyLock<[u8; MESSAGE]> =
    LazyLock::new(|| Handshake::begin(&KEY).expect("the system gives random bytes").1);

fn pair() -> (Cipher, Cipher) {
    let (handshake, question) = Handshake::begin(&KEY).expect("the system gives random bytes");
    let (right, answer) = Handshake::answer(&KEY, &question).expect("a genuine message");
    (handshake.finish(&answer).expect("a genuine answer").rekeyed_every(3), right.rekeyed_every(3))
}

/// Runs one input as bytes of a process without the key, as a message of a handshake, and as changes to genuine records
/// and datagrams. The opened bytes must be a prefix of the sealed bytes, and nothing else may be opened.
pub fn run(data: &[u8]) {
    if let Record::Whole(len) = record::look(data) {
        assert!((TAG + 1..=record::LONGEST).contains(&len) && len + record::PREFIX <= data.len());
        let (_, mut right) = pair();
        assert!(
            record::open(&mut right, data, len, &mut vec![0; PLAIN + TAG]).is_err(),
            "the record was not sealed with the key"
        );
    }
    if let Some(question) = data.first_chunk::<MESSAGE>() {
        assert!(
            Handshake::answer(&KEY, question).is_err() || question == &*QUESTION,
            "the message was made without the key"
        );
    }
    stream(data);
    datagrams(data);
}

/// Each pair of bytes is one step: a record is sealed, or a byte in transit is changed, removed or duplicated, or the bytes
/// in transit are truncated.
fn stream(data: &[u8]) {
    let (mut left, mut right) = pair();
    let (mut sent, mut in_transit, mut first_change) = (vec![], vec![], usize::MAX);
    let mut record = vec![0; WHOLE];
    for step in data.chunks_exact(2).take(64) {
        let (what, with) = (step[0], usize::from(step[1]));
        let at = if in_transit.is_empty() { 0 } else { with * in_transit.len() / 256 };
        match what % 8 {
            0..4 => {
                let plain = vec![what; with * 9 + 1];
                let len = record::seal(&mut left, &plain, &mut record);
                assert_eq!(len, record::PREFIX + plain.len() + TAG);
                in_transit.extend_from_slice(&record[..len]);
                sent.extend(plain);
                continue;
            }
            _ if in_transit.is_empty() => continue,
            4 => in_transit[at] ^= 1 << (what >> 5),
            5 => drop(in_transit.remove(at)),
            6 => in_transit.truncate(at),
            _ => in_transit.insert(at, in_transit[at]),
        }
        first_change = first_change.min(at);
    }
    let (mut received, mut from, mut opened) = (vec![], 0, vec![0; PLAIN + TAG]);
    while let Record::Whole(len) = record::look(&in_transit[from..]) {
        let Ok(count) = record::open(&mut right, &in_transit[from..], len, &mut opened) else { break };
        received.extend_from_slice(&opened[..count]);
        from += record::PREFIX + len;
    }
    assert!(sent.starts_with(&received), "the receiver opened bytes that were not sent");
    assert!(first_change != usize::MAX || received == sent, "bytes are missing");
}

/// Each byte delivers an earlier datagram again, a changed one, or the next one. Each datagram must be opened once.
fn datagrams(data: &[u8]) {
    let (left, right) = pair();
    let mut window = ReplayWindow::new();
    let (mut accepted, mut sent) = ([false; 256], 0u64);
    for byte in data.iter().take(64) {
        let number = u64::from(byte % 32) + sent.saturating_sub(16);
        let mut sealed = [0; 5 + TAG];
        assert_eq!(left.seal_as(number, &[number as u8; 5], &mut sealed), sealed.len());
        sent = sent.max(number + 1);
        let as_number = number + u64::from(*byte >= 240);
        let is_new = window.is_new(as_number);
        let mut open = [0; 5 + TAG];
        let opened = right.open_as(as_number, &sealed, &mut open);
        assert_eq!(opened.is_ok(), as_number == number, "a datagram opens under its own number only");
        if opened.is_ok() && is_new {
            window.accept(as_number);
            let seen = &mut accepted[as_number as usize % 256];
            assert!(as_number >= 256 || !*seen, "the datagram was accepted twice");
            *seen = true;
        }
    }
}
