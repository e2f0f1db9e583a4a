//! Input to a UDP rail from processes without the key: datagrams, hellos and cards.

use towline_core::rail::HEAD;
use towline_net::JobKey;
use towline_udp::card;
use towline_udp::datagram::{Content, Datagram, inner_prefix, prefix_start, read, read_inner, sealed_prefix};
use towline_udp::hello::{HELLO, Hello};
use towline_udp::session::{Authenticator, End};

/// Runs one input with each parser. Accepted input must be encoded to the same bytes, and only the correct proof may be
/// accepted.
pub fn run(data: &[u8]) {
    let key = JobKey::new([0x5a; 32]);
    if let Ok(read) = card::decode(data) {
        let again = card::encode(&read, card::is_forwarded(data));
        assert_eq!(card::decode(&again), Ok(read));
    }
    match read(data) {
        Ok(Datagram::Plain { index, proof, content, frame }) => {
            assert_eq!([&prefix_start(content, index)[..], &proof, frame].concat(), data);
            if let Content::Frame { header, .. } = content {
                assert!(usize::from(header) <= HEAD.min(frame.len()));
            }
            let end = |rank| End { rank, instance: 1, nonce: [7; 16] };
            let authenticator = Authenticator::new(&key, end(0), end(1), index % 2 == 1);
            let start = data.first_chunk().expect("it was read");
            // The fuzzer observes comparisons, so it may find the correct proof.
            assert_eq!(authenticator.accepts(start, frame, &proof), proof == authenticator.proof(start, frame));
        }
        Ok(Datagram::Sealed { index, number, sealed }) => {
            assert_eq!([&sealed_prefix(index, number)[..], sealed].concat(), data);
        }
        Ok(Datagram::Hello(bytes)) => {
            assert!(Hello::decode(bytes, &key).is_err(), "the hello's code was made without the key")
        }
        Err(_) => {}
    }
    if let Ok((content, frame)) = read_inner(data) {
        assert_eq!([&inner_prefix(content)[..], frame].concat(), data);
    }
    if let Some(hello) = data.first_chunk::<HELLO>()
        && let Ok(read) = Hello::read(hello)
    {
        let written = read.encode(&key);
        assert_eq!(written[..HELLO - 32], hello[..HELLO - 32]);
        assert_eq!(Hello::decode(&written, &key), Ok(read));
    }
}
