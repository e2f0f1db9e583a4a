//! Which frames are lost, doubled and held back.

use std::time::{Duration, Instant};

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::network::Frame;

/// The most links.
pub const LINKS: usize = 2;
/// The most frames that overtake one that is held back.
const OVERTAKEN: u64 = 4;
/// The longest time for which a frame is held back, if no others follow.
const HELD: Duration = Duration::from_millis(5);

/// How often each fault happens, from 0 to 1.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Rates {
    /// A frame is lost.
    pub lose: f64,
    /// A frame is sent twice.
    pub double: f64,
    /// A frame is held back until others have overtaken it.
    pub reorder: f64,
}

/// Ends a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    /// The link, of which all frames are lost from then on.
    pub link: usize,
    /// After this many frames of all links.
    pub after: u64,
}

/// What a relay has done.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counts {
    /// All frames.
    pub frames: u64,
    /// Frames that were lost.
    pub lost: u64,
    /// Frames that were sent twice.
    pub doubled: u64,
    /// Frames that were held back.
    pub held: u64,
    /// The frames of each link, without those of a link that was cut.
    pub by_link: [u64; LINKS],
}

/// Decides about each frame.
#[derive(Debug)]
pub struct Faults {
    rates: Rates,
    random: Xoshiro256PlusPlus,
    cut: Option<Cut>,
    held: Vec<Held>,
    counts: Counts,
}

#[derive(Debug)]
struct Held {
    frame: Frame,
    /// Frames that still overtake it.
    overtaken: u64,
    /// When it is sent if they do not come.
    due: Instant,
}

impl Faults {
    /// The faults of a seed.
    pub fn new(rates: Rates, seed: u64, cut: Option<Cut>) -> Self {
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        Self { rates, random, cut, held: Vec::new(), counts: Counts::default() }
    }

    /// What was done so far.
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// A frame arrives. Returns those that are sent now: this one first, and then those that it was the last to overtake.
    pub fn pass(&mut self, now: Instant, frame: Frame) -> Vec<Frame> {
        self.counts.frames += 1;
        let mut sent = Vec::new();
        // Numbers are drawn for all three, so that a rate does not change the frames of the others.
        let [lost, doubled, held] =
            [self.rates.lose, self.rates.double, self.rates.reorder].map(|rate| self.happens(rate));
        let overtaken = 1 + self.random.next_u64() % OVERTAKEN;
        let is_cut = self.cut.is_some_and(|cut| cut.link == frame.link && self.counts.frames > cut.after);
        if let Some(count) = self.counts.by_link.get_mut(frame.link).filter(|_| !is_cut) {
            *count += 1;
        }
        if lost || is_cut {
            self.counts.lost += 1;
            return sent;
        }
        if doubled {
            self.counts.doubled += 1;
            sent.push(frame.clone());
        }
        if !held {
            sent.push(frame.clone());
        }
        for held in &mut self.held {
            held.overtaken -= 1;
        }
        sent.extend(self.release(|held| held.overtaken == 0));
        if held {
            self.counts.held += 1;
            self.held.push(Held { frame, overtaken, due: now + HELD });
        }
        sent
    }

    /// When a frame is held back no longer.
    pub fn next_due(&self) -> Option<Instant> {
        self.held.iter().map(|held| held.due).min()
    }

    /// The frames that are held back no longer.
    pub fn due(&mut self, now: Instant) -> Vec<Frame> {
        self.release(|held| held.due <= now)
    }

    fn release(&mut self, is_released: impl Fn(&Held) -> bool) -> Vec<Frame> {
        self.held.extract_if(.., |held| is_released(held)).map(|held| held.frame).collect()
    }

    fn happens(&mut self, rate: f64) -> bool {
        // 53 bits are the precision of the number.
        ((self.random.next_u64() >> 11) as f64) < rate * (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::super::network::Content;
    use super::*;

    fn frame(number: u32) -> Frame {
        Frame { link: 0, from: 0, to: 1, content: Content::Datagram(number.to_le_bytes().into()) }
    }

    fn number(frame: &Frame) -> u32 {
        let Content::Datagram(bytes) = &frame.content else { panic!("it was a datagram") };
        u32::from_le_bytes(bytes[..].try_into().unwrap())
    }

    /// What comes out when `count` frames go in, and then time passes.
    fn run(rates: Rates, seed: u64, count: u32) -> (Vec<u32>, Counts) {
        let mut faults = Faults::new(rates, seed, None);
        let now = Instant::now();
        let mut sent: Vec<_> = (0..count).flat_map(|number| faults.pass(now, frame(number))).collect();
        assert_eq!(faults.next_due().is_some(), !faults.held.is_empty());
        sent.extend(faults.due(now + HELD));
        assert_eq!(faults.next_due(), None);
        (sent.iter().map(number).collect(), faults.counts())
    }

    #[test]
    fn without_faults_all_frames_go_on_in_order() {
        let (sent, counts) = run(Rates::default(), 7, 1000);
        assert!(sent.into_iter().eq(0..1000));
        assert_eq!(counts, Counts { frames: 1000, by_link: [1000, 0], ..Counts::default() });
    }

    #[test]
    fn frames_are_lost_and_doubled_as_often_as_asked() {
        let (sent, counts) = run(Rates { lose: 0.05, ..Rates::default() }, 7, 10_000);
        assert!((400..600).contains(&counts.lost) && sent.len() as u64 == 10_000 - counts.lost, "{counts:?}");
        assert!(sent.is_sorted());
        let (sent, counts) = run(Rates { double: 0.05, ..Rates::default() }, 7, 10_000);
        assert!((400..600).contains(&counts.doubled) && sent.len() as u64 == 10_000 + counts.doubled, "{counts:?}");
        assert!(run(Rates { lose: 1.0, ..Rates::default() }, 7, 10).0.is_empty());
    }

    #[test]
    fn held_frames_are_overtaken_by_a_few_and_none_is_missing() {
        let rates = Rates { reorder: 0.1, ..Rates::default() };
        let (mut sent, counts) = run(rates, 7, 10_000);
        assert!((800..1200).contains(&counts.held), "{counts:?}");
        let moved = sent.iter().enumerate().filter(|(place, number)| *place != **number as usize).count();
        assert!(moved > 1000, "{moved}");
        assert!(sent.iter().enumerate().all(|(place, number)| place.abs_diff(*number as usize) <= 8));
        assert_eq!(run(rates, 7, 10_000).0, sent, "a seed repeats its faults");
        assert_ne!(run(rates, 8, 10_000).0, sent);
        sent.sort_unstable();
        assert!(sent.into_iter().eq(0..10_000));
    }

    #[test]
    fn a_link_that_was_cut_loses_all_and_the_other_nothing() {
        let mut faults = Faults::new(Rates::default(), 7, Some(Cut { link: 1, after: 100 }));
        let now = Instant::now();
        let pass = |number| faults.pass(now, Frame { link: number as usize % 2, ..frame(number) });
        let sent: Vec<_> = (0..1000).flat_map(pass).map(|frame| number(&frame)).collect();
        assert!(sent.into_iter().eq((0..1000).filter(|number| *number < 100 || number % 2 == 0)));
        assert_eq!(faults.counts(), Counts { frames: 1000, lost: 450, by_link: [500, 50], ..Counts::default() });
    }
}
