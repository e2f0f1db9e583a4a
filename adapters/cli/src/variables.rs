//! The environment variables that `towline run` passes to ranks: which of them are mistakes.

use std::ffi::OsString;

use towline::{Config, UnknownVariable};

/// Name and value of a variable.
pub type Variable = (OsString, OsString);

/// Variables that the launcher sets for each rank.
const OF_THE_LAUNCHER: [&str; 8] = [
    "TOWLINE_RANK",
    "TOWLINE_SIZE",
    "TOWLINE_ROOT",
    "TOWLINE_JOB",
    "TOWLINE_KEY",
    "TOWLINE_LISTEN",
    "TOWLINE_HOST",
    "TOWLINE_LOCAL",
];

/// Checks the variables of `-e` beside the options that set a variable too.
///
/// # Errors
/// The text for a variable that the launcher sets, or that an option sets to another value.
pub fn check_given(given: &[(OsString, OsString)], options: &[(&str, &str, Option<String>)]) -> Result<(), String> {
    for (name, value) in given {
        if OF_THE_LAUNCHER.iter().any(|own| name == *own) {
            let name = name.to_string_lossy();
            return Err(format!("-e {name}: `towline run` sets {name} for each rank itself, so leave it out"));
        }
        for (option, variable, set) in options {
            if name == *variable && set.as_ref().is_some_and(|set| value != set.as_str()) {
                let (value, set) = (value.to_string_lossy(), set.as_deref().unwrap_or_default());
                return Err(format!(
                    "-e {variable}={value} and {option} {set} contradict each other: leave one of them out"
                ));
            }
        }
    }
    Ok(())
}

/// A variable of `-e`, which has a name.
pub fn named(text: &str) -> Result<String, String> {
    if text.is_empty() || text.starts_with('=') {
        return Err("it has no name; write NAME=VALUE, or NAME for a variable that is set here".into());
    }
    Ok(text.into())
}

/// Warns of the variables of `-e` that have no value here.
pub fn warn_of_unset(variables: &[String]) {
    for name in variables.iter().filter(|name| !name.contains('=') && std::env::var_os(name).is_none()) {
        eprintln!(
            "towline: warning: -e {name}: {name} is not set here, so ranks do not get it; write -e {name}=VALUE to set it"
        );
    }
}

/// Warns of unknown variables among `names`. Returns the variable that keeps ranks from a repetition of the warning, if there is
/// one.
///
/// # Errors
/// The first warning, if warnings are errors (`strict`).
pub fn warn_of_unknown(names: impl Iterator<Item = OsString>, strict: bool) -> Result<Option<Variable>, String> {
    let unknown = unknown(names);
    match unknown.first() {
        Some(first) if strict => return Err(format!("{first} (an error, since TOWLINE_STRICT is set)")),
        _ => {}
    }
    let (variable, _) = Config::reported_variables(&[]);
    let reported = std::env::var(variable).unwrap_or_default();
    for unknown in unknown.iter().filter(|unknown| !reported.split(',').any(|name| name == unknown.name)) {
        eprintln!("towline: warning: {unknown}");
    }
    Ok(reported_to_children(&unknown))
}

/// Warns of the unknown variables of this process. Returns the variable that keeps jobs which this process launches from a
/// repetition.
pub fn warn_of_unknown_here() -> Option<Variable> {
    Config::warn_of_unknown_variables();
    reported_to_children(&unknown_here())
}

/// The unknown variables of this process.
pub fn unknown_here() -> Vec<UnknownVariable> {
    unknown(std::env::vars_os().map(|(name, _)| name))
}

fn unknown(names: impl Iterator<Item = OsString>) -> Vec<UnknownVariable> {
    let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names.dedup();
    Config::unknown_variables(names)
}

fn reported_to_children(unknown: &[UnknownVariable]) -> Option<Variable> {
    let (name, value) = Config::reported_variables(unknown);
    (!unknown.is_empty()).then(|| (name.into(), value.into()))
}
