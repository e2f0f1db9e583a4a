//! A stream of sealed records, and sealed datagrams, with an attacker on the path who has no key.

use std::sync::LazyLock;

use towline_crypt::record::{self, PLAIN, Record, WHOLE};
use towline_crypt::{Cipher, Handshake, MESSAGE, ReplayWindow, TAG};

const KEY: [u8; 32] = [0x5a; 32];

/// A handshake's messages, so that inputs can change them.
static QUESTION: LazyLock<[u8; MESSAGE]> = LazyLock::new(|| Handshake::begin(&KEY).expect("random bytes").1);

fn pair() -> (Cipher, Cipher) {
    let (handshake, question) = Handshake::begin(&KEY).expect("random bytes");
    let (right, answer) = Handshake::answer(&KEY, &question).expect("its own");
    (handshake.finish(&answer).expect("its own").rekeyed_every(3), right.rekeyed_every(3))
}

/// The input as what a stranger sends, as a handshake, and as what is done to records on their way: what is opened is a
/// beginning of what was sealed, and nothing else ever is.
pub fn run(data: &[u8]) {
    if let Record::Whole(len) = record::look(data) {
        assert!((TAG + 1..=record::LONGEST).contains(&len) && len + record::PREFIX <= data.len());
        let (_, mut right) = pair();
        assert!(record::open(&mut right, data, len, &mut vec![0; PLAIN + TAG]).is_err(), "sealed by nobody");
    }
    if let Some(question) = data.first_chunk::<MESSAGE>() {
        assert!(Handshake::answer(&KEY, question).is_err() || question == &*QUESTION, "without the key");
    }
    stream(data);
    datagrams(data);
}

/// Each pair of bytes is one thing done to the stream: a record is sealed, or bytes on the way are changed, left out, doubled.
fn stream(data: &[u8]) {
    let (mut left, mut right) = pair();
    let (mut said, mut way, mut spoilt) = (vec![], vec![], usize::MAX);
    let mut room = vec![0; WHOLE];
    for step in data.chunks_exact(2).take(64) {
        let (what, with) = (step[0], usize::from(step[1]));
        let at = if way.is_empty() { 0 } else { with * way.len() / 256 };
        match what % 8 {
            0..4 => {
                let plain = vec![what; with * 9 + 1];
                let len = record::seal(&mut left, &plain, &mut room);
                assert_eq!(len, record::PREFIX + plain.len() + TAG);
                way.extend_from_slice(&room[..len]);
                said.extend(plain);
                continue;
            }
            _ if way.is_empty() => continue,
            4 => way[at] ^= 1 << (what >> 5),
            5 => drop(way.remove(at)),
            6 => way.truncate(at),
            _ => way.insert(at, way[at]),
        }
        spoilt = spoilt.min(at);
    }
    let (mut heard, mut from, mut opened) = (vec![], 0, vec![0; PLAIN + TAG]);
    while let Record::Whole(len) = record::look(&way[from..]) {
        let Ok(count) = record::open(&mut right, &way[from..], len, &mut opened) else { break };
        heard.extend_from_slice(&opened[..count]);
        from += record::PREFIX + len;
    }
    assert!(said.starts_with(&heard), "something was made up");
    assert!(spoilt != usize::MAX || heard == said, "something is missing");
}

/// Each byte takes one of the datagrams so far again, or a changed one, or the next: each is opened once.
fn datagrams(data: &[u8]) {
    let (left, right) = pair();
    let mut window = ReplayWindow::new();
    let (mut taken, mut sent) = ([false; 256], 0u64);
    for byte in data.iter().take(64) {
        let number = u64::from(byte % 32) + sent.saturating_sub(16);
        let mut sealed = [0; 5 + TAG];
        assert_eq!(left.seal_as(number, &[number as u8; 5], &mut sealed), sealed.len());
        sent = sent.max(number + 1);
        let as_number = number + u64::from(*byte >= 240);
        let is_new = window.is_new(as_number);
        let mut open = [0; 5 + TAG];
        let opened = right.open_as(as_number, &sealed, &mut open);
        assert_eq!(opened.is_ok(), as_number == number, "under another number");
        if opened.is_ok() && is_new {
            window.accept(as_number);
            let seen = &mut taken[as_number as usize % 256];
            assert!(as_number >= 256 || !*seen, "twice");
            *seen = true;
        }
    }
}
