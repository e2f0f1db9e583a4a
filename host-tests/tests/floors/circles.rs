//! Circles of files: the strongly connected components of their imports (Tarjan).

use std::collections::{BTreeMap, BTreeSet};

use crate::imports::Import;

/// Each circle as a set of files.
pub fn find(imports: &[Import]) -> Vec<BTreeSet<String>> {
    let mut targets: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (from, to, _) in imports {
        targets.entry(from).or_default().insert(to);
        targets.entry(to).or_default();
    }
    let mut search = Search { targets: &targets, numbers: BTreeMap::new(), stack: Vec::new(), circles: Vec::new() };
    for file in targets.keys() {
        if !search.numbers.contains_key(file) {
            search.visit(file);
        }
    }
    search.circles
}

struct Search<'a> {
    targets: &'a BTreeMap<&'a str, BTreeSet<&'a str>>,
    /// When a file was found, and the earliest file of the stack that it leads to.
    numbers: BTreeMap<&'a str, (usize, usize)>,
    stack: Vec<&'a str>,
    circles: Vec<BTreeSet<String>>,
}

impl<'a> Search<'a> {
    fn visit(&mut self, file: &'a str) -> usize {
        let number = self.numbers.len();
        self.numbers.insert(file, (number, number));
        self.stack.push(file);
        let mut low = number;
        for target in &self.targets[file] {
            match self.numbers.get(target) {
                None => low = low.min(self.visit(target)),
                Some((found, _)) if self.stack.contains(target) => low = low.min(*found),
                Some(_) => {}
            }
        }
        self.numbers.insert(file, (number, low));
        if low == number {
            let start = self.stack.iter().position(|name| *name == file).unwrap();
            let circle = self.stack.split_off(start);
            if circle.len() > 1 {
                self.circles.push(circle.into_iter().map(String::from).collect());
            }
        }
        low
    }
}

#[test]
fn a_circle_is_found_and_a_chain_is_none() {
    let import = |(from, to): (&str, &str)| (from.to_string(), to.to_string(), "x".to_string());
    assert!(find(&[("a", "b"), ("b", "c"), ("a", "c")].map(import)).is_empty());
    let circles = find(&[("a", "b"), ("b", "c"), ("c", "b"), ("c", "d")].map(import));
    assert_eq!(circles, [["b", "c"].map(String::from).into()]);
}
