//! `floors.txt`: the crates from the highest floor to the lowest, and the rooms of those whose floors are fixed.

use std::collections::BTreeMap;

/// The planned floors. Floor 0 is the highest one.
pub struct Plan {
    crates: Vec<Vec<String>>,
    rooms: BTreeMap<String, Vec<Vec<String>>>,
}

impl Plan {
    /// Parses `floors.txt`. A line `crates: a b > c` says that `a` and `b` are on one floor and `c` is below them. A line
    /// `FOLDER: a > b c` says the same of the rooms of a crate.
    pub fn parse(text: &str) -> Self {
        let mut plan = Self { crates: Vec::new(), rooms: BTreeMap::new() };
        for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
            let (name, floors) = line
                .split_once(": ")
                .unwrap_or_else(|| panic!("floors.txt: this line is not of the form `NAME: FLOOR > FLOOR`: {line}"));
            let floors = floors.split('>').map(|floor| floor.split_whitespace().map(String::from).collect()).collect();
            if name == "crates" {
                plan.crates = floors;
            } else {
                plan.rooms.insert(name.to_string(), floors);
            }
        }
        plan
    }

    pub fn crates(&self) -> Vec<String> {
        self.crates.concat()
    }

    /// Each crate with its floor.
    pub fn floors(&self) -> impl Iterator<Item = (&str, usize)> {
        self.crates.iter().enumerate().flat_map(|(floor, crates)| crates.iter().map(move |name| (name.as_str(), floor)))
    }

    /// The rooms of a crate, by floor. Empty for a crate in which only circles are forbidden.
    pub fn rooms(&self, folder: &str) -> &[Vec<String>] {
        self.rooms.get(folder).map_or(&[], Vec::as_slice)
    }
}

/// The floor of a room, if `floors.txt` has one.
pub fn floor(rooms: &[Vec<String>], room: &str) -> Option<usize> {
    rooms.iter().position(|floor| floor.iter().any(|name| name == room))
}
