//! The files of a crate as a tree of modules, and the imports between these files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::Visit;

use crate::imports::{Found, Import, Named};

/// The path of a module, from the root of the crate. The path of the root is empty.
type Module = Vec<String>;

pub struct Sources {
    /// The file of each module. An inline module is in the file of the module around it.
    files: BTreeMap<Module, String>,
    found: BTreeMap<Module, Found>,
}

impl Sources {
    /// Reads the file of the crate's root, and of all modules below it that are not for tests.
    pub fn read(top: &Path) -> Self {
        let mut sources = Self { files: BTreeMap::new(), found: BTreeMap::new() };
        let folder = top.parent().unwrap();
        sources.add(Module::new(), top, folder, folder);
        sources
    }

    fn add(&mut self, module: Module, path: &Path, folder: &Path, source: &Path) {
        let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut found = Found::default();
        found.visit_file(&parsed);
        let name = path.strip_prefix(source).unwrap().display().to_string();
        for inline in &found.inline {
            self.files.insert([&module[..], inline].concat(), name.clone());
        }
        self.files.insert(module.clone(), name);
        for child in found.children.clone() {
            let below = child.iter().fold(folder.to_path_buf(), |folder, name| folder.join(name));
            let candidates: [PathBuf; 2] = [below.with_extension("rs"), below.join("mod.rs")];
            // A module with an attribute `path`, or one that a macro creates, has neither file.
            if let Some(path) = candidates.iter().find(|path| path.exists()) {
                self.add([&module[..], &child].concat(), path, &below, source);
            }
        }
        self.found.insert(module, found);
    }

    /// All imports of one file from another, each pair once.
    pub fn imports(&self) -> Vec<Import> {
        let mut imports = BTreeMap::new();
        for (module, found) in &self.found {
            for named in &found.named {
                let Some((target, name)) = self.resolve(module, named, 0) else { continue };
                let [from, to] = [module, &target].map(|module| self.files[module].clone());
                if from != to {
                    imports.entry((from, to)).or_insert(name);
                }
            }
        }
        imports.into_iter().map(|((from, to), name)| (from, to, name)).collect()
    }

    /// The module that defines the item of a path, and the item's name there. `None` if the path leads to another crate, or to
    /// a module.
    fn resolve(&self, from: &Module, named: &Named, depth: usize) -> Option<(Module, String)> {
        let mut module = [&from[..], &named.within].concat();
        let mut rest = &named.path[..];
        match rest.first()?.as_str() {
            "crate" => (module, rest) = (Module::new(), &rest[1..]),
            "self" => rest = &rest[1..],
            "super" => {
                while rest.first().is_some_and(|first| first == "super") {
                    module.pop()?;
                    rest = &rest[1..];
                }
            }
            // Perhaps a child of this module.
            first => {
                let child = [&module[..], &[first.to_string()]].concat();
                if !self.files.contains_key(&child) || rest.len() < 2 {
                    return None;
                }
            }
        }
        self.descend(module, rest, depth)
    }

    fn descend(&self, mut module: Module, mut rest: &[String], depth: usize) -> Option<(Module, String)> {
        // The limit ends a circle of re-exports.
        if depth > 16 {
            return None;
        }
        while let Some((first, behind)) = rest.split_first() {
            let child = [&module[..], std::slice::from_ref(first)].concat();
            if !self.files.contains_key(&child) || behind.is_empty() {
                break;
            }
            (module, rest) = (child, behind);
        }
        let name = rest.first()?;
        if self.files.contains_key(&[&module[..], std::slice::from_ref(name)].concat()) && rest.len() == 1 {
            return None;
        }
        let owner = self.owner(&module);
        let exports = self.found.get(&owner).map_or(&[][..], |found| &found.exports);
        if let Some((_, named)) = exports.iter().find(|(exported, _)| exported == name) {
            let path = Named { within: named.within.clone(), path: [&named.path[..], &rest[1..]].concat() };
            // A re-export from another crate gives `None`: it imports nothing from this crate.
            return self.resolve(&owner, &path, depth + 1);
        }
        if !self.defines(&owner, name) {
            for (_, named) in exports.iter().filter(|(exported, _)| exported == "*") {
                let behind = &named.path[..named.path.len() - 1];
                let path = Named { within: named.within.clone(), path: [behind, rest].concat() };
                if let Some((target, name)) = self.resolve(&owner, &path, depth + 1)
                    && self.defines(&target, &name)
                {
                    return Some((target, name));
                }
            }
        }
        Some((owner, name.clone()))
    }

    /// The module whose file a module is in.
    fn owner(&self, module: &Module) -> Module {
        let mut owner = module.clone();
        while !self.found.contains_key(&owner) {
            owner.pop();
        }
        owner
    }

    /// Whether a module's file has a definition of that name.
    fn defines(&self, module: &Module, name: &str) -> bool {
        self.found.get(module).is_some_and(|found| found.defined.iter().any(|defined| defined == name))
    }

    /// The room of a file: the folder or file directly below the crate's sources.
    pub fn room(&self, file: &str) -> String {
        file.split('/').next().unwrap().trim_end_matches(".rs").to_string()
    }

    /// All rooms, without the root of the crate.
    pub fn rooms(&self) -> BTreeSet<String> {
        let rooms = self.files.values().map(|file| self.room(file));
        rooms.filter(|room| room != "lib" && room != "main").collect()
    }

    /// Describes the imports within a circle of files, one per line.
    pub fn describe(&self, circle: &BTreeSet<String>) -> String {
        self.describe_within(|from, to| circle.contains(from) && circle.contains(to))
    }

    /// Describes the imports between the rooms of a circle, one per line.
    pub fn describe_rooms(&self, circle: &BTreeSet<String>) -> String {
        self.describe_within(|from, to| {
            let [from, to] = [from, to].map(|file| self.room(file));
            from != to && circle.contains(&from) && circle.contains(&to)
        })
    }

    fn describe_within(&self, within: impl Fn(&str, &str) -> bool) -> String {
        let imports = self.imports();
        let lines = imports
            .iter()
            .filter(|(from, to, _)| within(from, to))
            .map(|(from, to, name)| format!("  {from} imports {name} from {to}"));
        lines.collect::<Vec<_>>().join("\n")
    }
}
