//! What comes late, when numbers have gone on: it says nothing of those that have taken the old ones' places.

use super::bench::{Bench, bytes};
use super::wire::Faults;
use crate::btl::*;

const MILLISECOND: u64 = 1_000_000;

/// An acknowledgement that was overtaken by a whole window of others names numbers whose places others have now.
#[test]
fn p15_b34_an_overtaken_acknowledgement_is_none_of_later_frames() {
    for window in [4, 64, 256] {
        let mut bench = Bench::new(2, 1, Faults::default(), |config| config.window = window);
        let count = u64::from(window.max(64)) + 4;
        for number in 0..count {
            bench.send(0, 1, Lane::Eager, &bytes(number, 30));
        }
        bench.settle();
        bench.faults(|faults| faults.silent = true);
        assert!(bench.try_send(0, 1, Lane::Eager, &bytes(count, 30)).is_ok());
        let at = bench.ends[0].to[1].0;
        assert!(bench.ends[0].link.take_ack(at, 2, 2, &[1 << 2]), "of number 4, which was sent");
        assert_eq!(bench.ends[0].link.used(), [1, 0], "window {window}");
        bench.faults(|faults| faults.silent = false);
        bench.settle();
        bench.check(0, 1, (0..=count).collect());
    }
}

/// All that was on its way is lost, and nothing comes after it: the first is sent again after one timeout, and the rest with
/// what that brings.
#[test]
fn p15_what_was_lost_all_at_once_is_sent_again_at_once() {
    let mut bench = Bench::new(2, 1, Faults::default(), |_| {});
    for number in 0..100 {
        bench.send(0, 1, Lane::Eager, &bytes(number, 30));
    }
    bench.settle();
    bench.faults(|faults| faults.silent = true);
    for number in 100..130 {
        assert!(bench.try_send(0, 1, Lane::Bulk, &bytes(number, 30)).is_ok());
    }
    bench.run_for(MILLISECOND);
    bench.faults(|faults| faults.silent = false);
    let since = bench.now;
    bench.settle();
    bench.check(0, 1, (0..130).collect());
    let took = bench.now - since;
    assert!(took < 30 * MILLISECOND, "{took} ns, timeouts last {} ms", 5);
}
