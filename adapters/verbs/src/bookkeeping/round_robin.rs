//! Whose turn it is. Pure.

/// Goes round among things with numbers, each time from where it stopped.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Round {
    next: u32,
}

impl Round {
    /// Visits each of `count` once, until one answers `false`: the next time it is the first. Whether all were visited.
    pub fn go(&mut self, count: u32, mut visit: impl FnMut(u32) -> bool) -> bool {
        let start = if self.next < count { self.next } else { 0 };
        for number in (start..count).chain(0..start) {
            self.next = number;
            if !visit(number) {
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_left_out_where_there_is_enough_for_some_alone() {
        let mut round = Round::default();
        let mut had = [0; 10];
        for _ in 0..10 {
            let mut left = 4;
            let all = round.go(10, |number| {
                if left == 0 {
                    return false;
                }
                left -= 1;
                had[number as usize] += 1;
                true
            });
            assert!(!all);
        }
        assert_eq!(had, [4; 10]);
        assert!(round.go(10, |_| true));
        let mut seen = vec![];
        let all = round.go(2, |number| {
            seen.push(number);
            true
        });
        assert_eq!((all, &seen[..]), (true, &[0, 1][..]), "fewer than before");
        assert!(round.go(0, |_| false));
    }
}
