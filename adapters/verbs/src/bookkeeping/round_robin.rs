//! A round-robin order that continues where the last round stopped.

/// Visits numbered items in turn, each time from the number where the last round stopped.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct RoundRobin {
    next: u32,
}

impl RoundRobin {
    /// Visits each of `count` items once, until `visit` answers `false` for one: the next round begins with that item. Returns
    /// whether all were visited.
    pub fn visit(&mut self, count: u32, mut visit: impl FnMut(u32) -> bool) -> bool {
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
    fn no_item_starves_where_a_round_reaches_only_some() {
        let mut round = RoundRobin::default();
        let mut visits = [0; 10];
        for _ in 0..10 {
            let mut left = 4;
            let all = round.visit(10, |number| {
                if left == 0 {
                    return false;
                }
                left -= 1;
                visits[number as usize] += 1;
                true
            });
            assert!(!all);
        }
        assert_eq!(visits, [4; 10]);
        assert!(round.visit(10, |_| true));
        let mut seen = vec![];
        let all = round.visit(2, |number| {
            seen.push(number);
            true
        });
        assert_eq!((all, &seen[..]), (true, &[0, 1][..]), "fewer than before");
        assert!(round.visit(0, |_| false));
    }
}
