//! Spellings of other launchers: what users of `mpirun` and `mpiexec` type means the same in `towline run`, or is answered by the
//! option to use instead.

use std::ffi::{OsStr, OsString};

use clap::{Arg, Command};
use towline_settings::nearest;

/// What a spelling of another launcher means here.
enum Meaning {
    /// The option of this name, with the same value.
    Option(&'static str),
    /// `--env`, with a name and a value that follow as two arguments.
    NameAndValue,
    /// Nothing: a launch is like this in any case.
    Default,
    /// Something that `towline run` does in another way.
    Instead(&'static str),
}

use Meaning::{Default, Instead, NameAndValue, Option as Means};

/// The advice for a list of hosts on the command line.
const HOSTS: &str = "write the hosts to a file, one `host` or `host slots=N` on each line, and use --hosts FILE";
/// The advice for a number of ranks for each host.
const PER_HOST: &str = "write `host slots=N` for each host to the file of --hosts";
/// The advice for parameters of other libraries.
const PARAMETERS: &str =
    "set an environment variable of Towline by -e TOWLINE_NAME=VALUE; `towline info` lists all settings";
/// The advice for a working directory.
const DIRECTORY: &str =
    "start `towline run` in that directory, or let the ranks run `sh -c 'cd DIRECTORY && exec PROGRAM'`";

/// Spellings of Open MPI, of MPICH, or of both.
const SPELLINGS: [(&str, Meaning); 37] = [
    ("-np", Means("--ranks")),
    ("--np", Means("--ranks")),
    ("-c", Means("--ranks")),
    ("--n", Means("--ranks")),
    ("-hostfile", Means("--hosts")),
    ("--hostfile", Means("--hosts")),
    ("-machinefile", Means("--hosts")),
    ("--machinefile", Means("--hosts")),
    ("-f", Means("--hosts")),
    ("-x", Means("--env")),
    ("-env", NameAndValue),
    ("-genv", NameAndValue),
    ("-oversubscribe", Default),
    ("--oversubscribe", Default),
    ("--allow-run-as-root", Default),
    ("-l", Default),
    ("-prepend-rank", Default),
    ("-H", Instead(HOSTS)),
    ("-host", Instead(HOSTS)),
    ("--host", Instead(HOSTS)),
    ("-N", Instead(PER_HOST)),
    ("-ppn", Instead(PER_HOST)),
    ("-npernode", Instead(PER_HOST)),
    ("--npernode", Instead(PER_HOST)),
    ("-perhost", Instead(PER_HOST)),
    ("-mca", Instead(PARAMETERS)),
    ("--mca", Instead(PARAMETERS)),
    ("-gmca", Instead(PARAMETERS)),
    ("--gmca", Instead(PARAMETERS)),
    ("--tune", Instead(PARAMETERS)),
    ("-wd", Instead(DIRECTORY)),
    ("-wdir", Instead(DIRECTORY)),
    ("--wd", Instead(DIRECTORY)),
    ("--wdir", Instead(DIRECTORY)),
    ("-genvlist", Instead("name each variable by -e NAME")),
    ("-envlist", Instead("name each variable by -e NAME")),
    ("--output-filename", Instead("use --output DIR")),
];

/// Translates the arguments of the process, if they are for `towline run`. What follows the options of the launcher, the program
/// and its arguments, is left as it is. `all` is the whole command.
///
/// # Errors
/// The text for an option that does not exist, with the nearest one, or with what to use instead.
pub fn translate(arguments: Vec<OsString>, all: &Command) -> Result<Vec<OsString>, String> {
    let is_run = arguments.get(1).is_some_and(|command| command == "run");
    let Some(run) = all.find_subcommand("run").filter(|_| is_run) else { return Ok(arguments) };
    let mut rest = arguments.into_iter();
    let mut translated: Vec<OsString> = rest.by_ref().take(2).collect();
    while let Some(argument) = rest.next() {
        let Some(text) = argument.to_str().filter(|text| text.len() > 1 && text.starts_with('-') && *text != "--")
        else {
            translated.push(argument); // the program, or `--` before it
            break;
        };
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        match SPELLINGS.iter().find(|(spelling, _)| *spelling == name).map(|(_, meaning)| meaning) {
            Some(Means(option)) => {
                translated.push(option.into());
                translated.extend(value.map(Into::into).or_else(|| rest.next()));
            }
            Some(NameAndValue) => {
                let (Some(name), Some(value)) = (rest.next(), rest.next()) else {
                    return Err(format!("`{text}` needs a name and a value; or write -e NAME=VALUE"));
                };
                let assignment = [name.as_os_str(), OsStr::new("="), value.as_os_str()].into_iter().collect();
                translated.extend(["--env".into(), assignment]);
            }
            Some(Default) => {}
            Some(Instead(advice)) => return Err(format!("`towline run` has no option `{name}`: {advice}")),
            None => {
                let (option, needs_value) = known(run, name, value.is_some()).ok_or_else(|| unknown(run, name))?;
                match value {
                    Some(value) if option != name => translated.extend([option.into(), value.into()]),
                    _ if option != name => translated.push(option.into()),
                    _ => translated.push(argument),
                }
                translated.extend(needs_value.then(|| rest.next()).flatten());
            }
        }
    }
    translated.extend(rest);
    Ok(translated)
}

/// The option that `name` stands for, and whether the next argument is its value. A long name may have one dash only, as other
/// launchers write it. `None`: there is no such option.
fn known(run: &Command, name: &str, has_value: bool) -> Option<(String, bool)> {
    let needs_value = |argument: &Arg| argument.get_action().takes_values() && !has_value;
    let long = name.trim_start_matches('-');
    let is_long = |argument: &&Arg| long_names(argument).any(|name| name == long);
    if let Some(argument) = run.get_arguments().find(is_long).filter(|_| long.len() > 1) {
        return Some((format!("--{long}"), needs_value(argument)));
    }
    if matches!(long, "help" | "version") {
        return Some((format!("--{long}"), false));
    }
    let letter = name.strip_prefix('-').filter(|rest| !rest.starts_with('-'))?.chars().next()?;
    if matches!(name, "-h" | "-V") {
        return Some((name.into(), false));
    }
    let argument = run.get_arguments().find(|argument| argument.get_short() == Some(letter))?;
    // A value may follow the letter at once, as in `-n2`.
    Some((name.into(), needs_value(argument) && name.len() == 2))
}

fn long_names(argument: &Arg) -> impl Iterator<Item = &str> {
    argument.get_long().into_iter().chain(argument.get_all_aliases().unwrap_or_default())
}

/// The text for an unknown option.
fn unknown(run: &Command, name: &str) -> String {
    let options = run.get_arguments().filter(|argument| !argument.is_hide_set()).flat_map(long_names);
    let meant = nearest(name.trim_start_matches('-'), options);
    let meant = meant.map_or_else(String::new, |meant| format!(": did you mean `--{meant}`?"));
    format!(
        "`towline run` has no option `{name}`{meant} `towline run --help` lists all options. A program whose name begins with `-` is \
         written after `--`"
    )
    .replacen("` `towline", "`. `towline", 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    fn translated(line: &str) -> Result<String, String> {
        let mut all = crate::Arguments::command();
        all.build();
        let arguments = line.split(' ').map(Into::into).collect();
        let texts = translate(arguments, &all)?;
        Ok(texts.iter().map(|text| text.to_string_lossy()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn spellings_of_mpirun_mean_the_same() {
        for (line, meaning) in [
            ("-np 2 prog", "--ranks 2 prog"),
            ("--np 2 prog", "--ranks 2 prog"),
            ("--np=2 prog", "--ranks 2 prog"),
            ("-c 2 prog -np 3", "--ranks 2 prog -np 3"),
            ("-n 2 -x A=1 prog", "-n 2 --env A=1 prog"),
            ("-n2 prog", "-n2 prog"),
            ("-hostfile f -np 2 -- -np", "--hosts f --ranks 2 -- -np"),
            ("--machinefile f prog", "--hosts f prog"),
            ("-timeout 5 -n 1 prog", "--timeout 5 -n 1 prog"),
            ("-genv A 1 -n 1 prog", "--env A=1 -n 1 prog"),
            ("--oversubscribe -n 1 prog", "-n 1 prog"),
            ("-n 1 -e A=-np --env=-x prog", "-n 1 -e A=-np --env=-x prog"),
            ("--max-restarts 2 -n 1 prog", "--max-restarts 2 -n 1 prog"),
            ("--version", "--version"),
            ("-V", "-V"),
            ("-h", "-h"),
            ("--help", "--help"),
        ] {
            assert_eq!(translated(&format!("towline run {line}")), Ok(format!("towline run {meaning}")));
        }
        assert_eq!(translated("towline info -np"), Ok("towline info -np".into()));
    }

    #[test]
    fn other_spellings_are_answered_by_what_to_use() {
        for (line, words) in [
            ("-H a,b prog", ["`-H`", "--hosts FILE"]),
            ("--mca btl tcp prog", ["`--mca`", "-e TOWLINE_NAME=VALUE"]),
            ("--rank 2 prog", ["`--rank`", "did you mean `--ranks`?"]),
            ("--host-s f prog", ["`--host-s`", "did you mean `--hosts`?"]),
            ("--nonsense prog", ["`--nonsense`.", "towline run --help"]),
            ("-q prog", ["`-q`.", "towline run --help"]),
            ("-genv A", ["`-genv`", "-e NAME=VALUE"]),
        ] {
            let why = translated(&format!("towline run {line}")).unwrap_err();
            assert!(words.iter().all(|word| why.contains(word)), "{line}: {why}");
        }
    }
}
