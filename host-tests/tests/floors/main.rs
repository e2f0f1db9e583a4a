//! Checks the floors of the code: within a crate imports go down only, and no two files import each other, directly or through
//! other files. `floors.txt` lists the crates and their rooms, highest first.
//!
//! A file imports another one if it names an item of that file, in a `use` or in a path. Code for tests does not count. A
//! re-export does not count either: a file that uses a re-exported item imports the file that defines the item.

mod circles;
mod imports;
mod plan;
mod sources;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use imports::Import;
use plan::Plan;
use sources::Sources;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn plan() -> Plan {
    Plan::parse(include_str!("../../floors.txt"))
}

fn read(folder: &str) -> Sources {
    let source = root().join(folder).join("src");
    let top = ["lib.rs", "main.rs"].map(|name| source.join(name)).into_iter().find(|path| path.exists());
    Sources::read(&top.unwrap_or_else(|| panic!("{folder}: neither src/lib.rs nor src/main.rs")))
}

/// The names of this project's packages that the package in a folder depends on. Dependencies of tests do not count.
fn dependencies(folder: &str) -> Vec<String> {
    let manifest = std::fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap();
    let mut section = "";
    let mut names = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        } else if section == "[dependencies]" && line.starts_with("towline") {
            names.push(line.split([' ', '.', '=']).next().unwrap().to_string());
        }
    }
    names
}

fn package(folder: &str) -> String {
    let manifest = std::fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap();
    let name = manifest.lines().find_map(|line| line.strip_prefix("name = ")).unwrap();
    name.trim_matches('"').to_string()
}

#[test]
fn files_of_a_crate_form_no_circle() {
    let mut found = Vec::new();
    for folder in plan().crates() {
        let sources = read(&folder);
        for circle in circles::find(&sources.imports()) {
            found.push(format!("{folder}: these files import each other:\n{}", sources.describe(&circle)));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn rooms_of_a_crate_form_no_circle() {
    let mut found = Vec::new();
    for folder in plan().crates() {
        let sources = read(&folder);
        let rooms: Vec<Import> = sources
            .imports()
            .into_iter()
            .map(|(from, to, name)| (sources.room(&from), sources.room(&to), name))
            .collect();
        let between = |(from, to, _): &Import| from != to;
        for circle in circles::find(&rooms.into_iter().filter(between).collect::<Vec<_>>()) {
            found.push(format!("{folder}: these rooms import each other:\n{}", sources.describe_rooms(&circle)));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn imports_go_down_from_room_to_room() {
    let mut found = Vec::new();
    for folder in plan().crates() {
        let sources = read(&folder);
        let plan = plan();
        let rooms = plan.rooms(&folder);
        for (from, to, name) in sources.imports() {
            let [above, below] = [&from, &to].map(|file| plan::floor(rooms, &sources.room(file)));
            match (above, below) {
                (Some(above), Some(below))
                    if above > below || (above == below && sources.room(&from) != sources.room(&to)) =>
                {
                    found.push(format!(
                        "{folder}: {from} imports {name} from {to}, which is not on a lower floor of floors.txt"
                    ));
                }
                _ => {}
            }
        }
        if !rooms.is_empty() {
            for room in sources.rooms() {
                assert!(
                    plan::floor(rooms, &room).is_some(),
                    "{folder}: the room `{room}` has no floor: add it to floors.txt"
                );
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn crates_depend_on_lower_ones_alone() {
    let plan = plan();
    let floors: Vec<(String, usize)> = plan.floors().map(|(folder, floor)| (package(folder), floor)).collect();
    let floor = |name: &str| floors.iter().find(|(package, _)| package == name).map(|(_, floor)| *floor);
    for (folder, above) in plan.floors() {
        for name in dependencies(folder) {
            let below = floor(&name)
                .unwrap_or_else(|| panic!("{folder}: its dependency {name} has no floor: add it to floors.txt"));
            assert!(above < below, "{folder} depends on {name}, which is not on a lower floor of floors.txt");
        }
    }
    let planned: BTreeSet<String> = plan.floors().map(|(folder, _)| folder.to_string()).collect();
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let members = manifest.split_once("members = [").unwrap().1.split_once(']').unwrap().0;
    for member in members.split(',').map(|member| member.trim().trim_matches('"')).filter(|member| !member.is_empty()) {
        assert!(planned.contains(member), "{member} has no floor: add it to floors.txt");
    }
}
