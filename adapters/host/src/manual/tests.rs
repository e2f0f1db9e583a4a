//! Tests of the manual: the tables of settings in the chapter on tuning are those of [`Config`].

use std::fmt::Write as _;

use crate::Config;

const TUNING: &str = include_str!("tuning.rs");
const BEGIN: &str = "//! <!-- settings";
const END: &str = "//! <!-- end -->";

/// The transports whose settings have a table of their own: the prefixes of their variables after `TOWLINE_`.
const GROUPS: [&str; 5] = ["SM_", "TCP_", "UDP_", "VERBS_", "DPU_"];

/// The chapter on tuning with tables made from the settings.
fn generated() -> String {
    let settings = Config::default().settings_from(|_| None).unwrap();
    let (mut text, mut inside) = (String::new(), false);
    for line in TUNING.lines() {
        if line == END {
            inside = false;
        }
        if !inside {
            writeln!(text, "{line}").unwrap();
        }
        let Some(group) = line.strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix("-->")).map(str::trim) else {
            continue;
        };
        inside = true;
        text += "//!\n//! | variable | default | effect |\n//! |---|---|---|\n";
        for it in &settings {
            let name = it.variable.strip_prefix("TOWLINE_").unwrap();
            let own = GROUPS.iter().find(|prefix| name.starts_with(**prefix)).copied().unwrap_or_default();
            if own == group {
                let default = if it.default.is_empty() { "empty".into() } else { format!("`{}`", it.default) };
                let unit = if it.unit.is_empty() { String::new() } else { format!(" {}", it.unit) };
                writeln!(text, "//! | `{}` | {default}{unit} | {} |", it.variable, it.help).unwrap();
            }
        }
        text += "//!\n";
    }
    text
}

#[test]
fn the_chapter_on_tuning_has_every_setting_as_it_is() {
    let generated = generated();
    if std::env::var_os("TOWLINE_WRITE_MANUAL").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/src/manual/tuning.rs"), &generated).unwrap();
    } else {
        let wrong = generated.lines().zip(TUNING.lines()).find(|(new, old)| new != old);
        assert!(
            generated == TUNING,
            "src/manual/tuning.rs does not tell the settings as they are: run `TOWLINE_WRITE_MANUAL=1 cargo test -p towline \
             --lib manual`; first difference: {wrong:?}"
        );
    }
    for it in Config::default().settings_from(|_| None).unwrap() {
        assert!(generated.contains(&format!("//! | `{}` |", it.variable)), "{} is in no table", it.variable);
    }
}
