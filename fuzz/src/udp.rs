//! What strangers say to a UDP rail: datagrams, hellos and cards.

use towline_core::rail::HEAD;
use towline_net::JobKey;
use towline_udp::card;
use towline_udp::datagram::{Datagram, What, inner, read, read_inner, sealed_start, start};
use towline_udp::hello::{HELLO, Hello};
use towline_udp::session::auth::{Seal, Side};

/// Feeds the input to each reader: what is read writes back the same, and nothing passes for proved but the proof.
pub fn run(data: &[u8]) {
    let key = JobKey::new([0x5a; 32]);
    if let Ok(read) = card::decode(data) {
        let again = card::encode(&read, card::is_forwarded(data));
        assert_eq!(card::decode(&again), Ok(read));
    }
    match read(data) {
        Ok(Datagram::Marked { index, proof, what, frame }) => {
            assert_eq!([&start(what, index)[..], &proof, frame].concat(), data);
            if let What::Frame { header, .. } = what {
                assert!(usize::from(header) <= HEAD.min(frame.len()));
            }
            let side = |rank| Side { rank, instance: 1, nonce: [7; 16] };
            let seal = Seal::new(&key, side(0), side(1), index % 2 == 1);
            let start = data.first_chunk().expect("it was read");
            // The search sees what is compared, and learns marks that way.
            assert_eq!(seal.accepts(start, frame, &proof), proof == seal.proof(start, frame));
        }
        Ok(Datagram::Sealed { index, number, sealed }) => {
            assert_eq!([&sealed_start(index, number)[..], sealed].concat(), data);
        }
        Ok(Datagram::Hello(bytes)) => assert!(Hello::decode(bytes, &key).is_err(), "a stranger's code"),
        Err(_) => {}
    }
    if let Ok((what, frame)) = read_inner(data) {
        assert_eq!([&inner(what)[..], frame].concat(), data);
    }
    if let Some(hello) = data.first_chunk::<HELLO>()
        && let Ok(read) = Hello::read(hello)
    {
        let written = read.encode(&key);
        assert_eq!(written[..HELLO - 32], hello[..HELLO - 32]);
        assert_eq!(Hello::decode(&written, &key), Ok(read));
    }
}
