//! Which rows of `towline info` are shown.

use towline::Setting;
use towline_settings::nearest;

use crate::transports;

/// A part of what is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Section {
    Start,
    Transports,
    Interfaces,
    Chosen,
    Machine,
    Memory,
    Settings,
}

impl Section {
    const ALL: [Self; 7] =
        [Self::Start, Self::Transports, Self::Interfaces, Self::Chosen, Self::Machine, Self::Memory, Self::Settings];

    const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Transports => "transports",
            Self::Interfaces => "interfaces",
            Self::Chosen => "chosen",
            Self::Machine => "machine",
            Self::Memory => "memory",
            Self::Settings => "settings",
        }
    }
}

/// One name that the user gave.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Name {
    Section(Section),
    /// A transport and its settings.
    Transport(&'static str),
    /// A setting, by its variable.
    Setting(&'static str),
}

/// The rows to show: those that one of the names means, as far as they contain a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Selection {
    /// Empty for all.
    names: Vec<Name>,
    /// In lower case.
    text: Option<String>,
}

impl Selection {
    /// The selection of these names and this text. A name is that of a section, a transport, a setting, or the variable of
    /// a setting.
    ///
    /// # Errors
    /// The first name that nothing has.
    pub fn new(names: &[String], text: Option<&str>, settings: &[Setting]) -> Result<Self, String> {
        let names = names.iter().map(|name| meaning(name, settings)).collect::<Result<_, _>>()?;
        Ok(Self { names, text: text.map(str::to_lowercase) })
    }

    /// Whether everything is shown.
    pub fn is_all(&self) -> bool {
        self.names.is_empty() && self.text.is_none()
    }

    /// Whether rows of this section may be shown.
    pub fn wants(&self, section: Section) -> bool {
        let wanted = |name: &Name| match name {
            Name::Section(named) => *named == section,
            Name::Transport(_) => matches!(section, Section::Transports | Section::Settings),
            Name::Setting(_) => section == Section::Settings,
        };
        self.names.is_empty() || self.names.iter().any(wanted)
    }

    /// Whether to show a row of a section, which has this name and these words.
    pub fn shows(&self, section: Section, of: &str, words: &[&str]) -> bool {
        let named = |name: &Name| match name {
            Name::Section(named) => *named == section,
            Name::Transport(transport) => {
                of == *transport || of.split_once('.').is_some_and(|(it, _)| it == *transport)
            }
            Name::Setting(variable) => section == Section::Settings && words.contains(variable),
        };
        let contains = |text: &String| words.iter().chain([&of]).any(|word| word.to_lowercase().contains(text));
        (self.names.is_empty() || self.names.iter().any(named)) && self.text.as_ref().is_none_or(contains)
    }
}

/// The beginning of the names of all variables.
const PREFIX: &str = "TOWLINE_";

fn meaning(name: &str, settings: &[Setting]) -> Result<Name, String> {
    let plain = name.to_ascii_lowercase().replace('-', "_");
    if let Some(section) = Section::ALL.into_iter().find(|section| section.name() == plain) {
        return Ok(Name::Section(section));
    }
    if let Some(transport) = transports::ALL.into_iter().chain(["loopback"]).find(|transport| *transport == plain) {
        return Ok(Name::Transport(transport));
    }
    let is_it = |it: &&Setting| [it.name, it.variable, rest(it.variable)].map(str::to_lowercase).contains(&plain);
    settings.iter().find(is_it).map(|it| Name::Setting(it.variable)).ok_or_else(|| {
        let meant = meant(&plain, settings).map_or_else(String::new, |meant| format!(" (did you mean `{meant}`?)"));
        format!(
            "`{name}` is not a known setting, transport or section{meant}; sections are {}, and `towline info --filter {name}` shows \
             all rows that contain this text",
            Section::ALL.map(Section::name).join(", ")
        )
    })
}

/// The name that was probably meant by this one, which is in lower case.
fn meant(name: &str, settings: &[Setting]) -> Option<&'static str> {
    if let Some(name) = name.strip_prefix(&PREFIX.to_lowercase()) {
        // The beginning is common to all variables, so it says nothing about which one is meant.
        let meant = nearest(name, settings.iter().map(|it| rest(it.variable)))?;
        return settings.iter().map(|it| it.variable).find(|variable| rest(variable) == meant);
    }
    let settings = settings.iter().map(|it| it.name);
    // Of equally similar names, the last one is taken.
    nearest(name, settings.chain(transports::ALL).chain(Section::ALL.map(Section::name)))
}

/// The name of a variable without its beginning.
fn rest(variable: &str) -> &str {
    variable.strip_prefix(PREFIX).unwrap_or(variable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Vec<Setting> {
        towline::Config::default().settings().unwrap()
    }

    fn shown(names: &[&str], text: Option<&str>) -> Vec<&'static str> {
        let names: Vec<_> = names.iter().map(|name| (*name).to_string()).collect();
        let selection = Selection::new(&names, text, &settings()).unwrap();
        let rows =
            settings().into_iter().filter(|it| selection.shows(Section::Settings, it.name, &[it.variable, it.help]));
        rows.map(|it| it.variable).collect()
    }

    #[test]
    fn a_setting_is_found_by_each_of_its_names() {
        for name in ["TOWLINE_SM_DIRECTORY", "towline_sm_directory", "sm.directory", "SM_DIRECTORY", "sm-directory"] {
            assert_eq!(shown(&[name], None), ["TOWLINE_SM_DIRECTORY"], "{name}");
        }
        assert_eq!(shown(&["spin_us", "links"], None), ["TOWLINE_LINKS", "TOWLINE_SPIN_US"]);
    }

    #[test]
    fn a_transport_stands_for_its_settings_and_a_text_selects_among_them() {
        let sm = shown(&["sm"], None);
        assert!(sm.len() > 4 && sm.iter().all(|variable| variable.starts_with("TOWLINE_SM_")), "{sm:?}");
        assert_eq!(shown(&["sm"], Some("LIVENESS")), ["TOWLINE_SM_LIVENESS_MS"]);
        assert_eq!(shown(&[], None).len(), settings().len());
    }

    #[test]
    fn an_unknown_name_is_an_error() {
        let why = Selection::new(&["spinn_us".into()], None, &settings()).unwrap_err();
        assert!(why.contains("(did you mean `spin_us`?); ") && why.contains("--filter spinn_us"), "{why}");
    }

    #[test]
    fn the_common_beginning_of_variables_is_no_similarity() {
        for (wrong, meant) in [
            ("TOWLINE_FOO", None),
            ("TOWLINE_SPINN_US", Some("TOWLINE_SPIN_US")),
            ("towline-link", Some("TOWLINE_LINKS")),
            ("SM_DIRECTRY", Some("sm.directory")),
            ("transport", Some("transports")),
        ] {
            let why = Selection::new(&[wrong.into()], None, &settings()).unwrap_err();
            assert_eq!(why.contains("did you mean"), meant.is_some(), "{why}");
            assert!(meant.is_none_or(|meant| why.contains(&format!("(did you mean `{meant}`?)"))), "{why}");
        }
    }
}
