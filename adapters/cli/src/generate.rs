//! `towline completions` and `towline man`: texts for shells and manual pages, generated from the commands.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Arg, Command};
use clap_complete::Shell;

use crate::files::refused;
use crate::stdout::out;

/// Print completions for a shell
///
/// For bash: towline completions bash >~/.local/share/bash-completion/completions/towline. For zsh: towline completions
/// zsh >DIR/_towline, where DIR is in $fpath. For fish: towline completions fish >~/.config/fish/completions/towline.fish.
#[derive(clap::Args, Debug)]
pub struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Write manual pages, one for each command
///
/// The directory is made if it is missing. In a directory man1 of $MANPATH, `man towline-run` finds the page of `towline
/// run`.
#[derive(clap::Args, Debug)]
pub struct Man {
    /// The directory for the pages
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Prints the completions.
pub fn completions(arguments: &Completions, command: &Command) -> ExitCode {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut visible(command), "towline", &mut text);
    out!("{}", String::from_utf8_lossy(&text));
    ExitCode::SUCCESS
}

/// Writes the manual pages.
pub fn man(arguments: &Man, command: &Command) -> ExitCode {
    let folder = &arguments.folder;
    let mut pages = visible(command);
    pages.build();
    let pages = pages.mut_subcommands(with_synopsis);
    let written = std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(pages, folder));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("towline: {}", refused("man", folder, "write manual pages there", &why));
            ExitCode::FAILURE
        }
    }
}

/// The command with its visible subcommands only. The hidden ones are for processes that Towline starts itself.
fn visible(command: &Command) -> Command {
    let mut visible = Command::new("towline").disable_help_subcommand(true).propagate_version(true);
    visible = visible.version(crate::version::NUMBER);
    if let Some(about) = command.get_about() {
        visible = visible.about(about.clone());
    }
    let shown = command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
    visible.subcommands(shown.cloned())
}

/// The command, with its [`synopsis`] as its usage. Those of its subcommands name their options themselves.
fn with_synopsis(page: Command) -> Command {
    if page.has_subcommands() {
        return page.mut_subcommands(with_synopsis);
    }
    let synopsis = synopsis(&page);
    page.override_usage(synopsis)
}

/// The synopsis of a command with the names of values, which `clap_mangen` leaves out: all options, and then what follows them.
fn synopsis(command: &Command) -> String {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let shown = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let (positional, options): (Vec<_>, Vec<_>) = shown.partition(|argument| argument.is_positional());
    let words = options.into_iter().chain(positional).map(synopsis_of);
    [name.to_string()].into_iter().chain(words).collect::<Vec<_>>().join(" ")
}

fn synopsis_of(argument: &Arg) -> String {
    let short = argument.get_short().map(|letter| format!("-{letter}"));
    let long = argument.get_long().map(|name| format!("--{name}"));
    let names: Vec<_> = short.into_iter().chain(long).collect();
    let values = argument.get_value_names().filter(|_| argument.get_action().takes_values());
    let values = values.map(|names| names.join(" "));
    let words: Vec<_> = [names.join("|"), values.unwrap_or_default()].into_iter().filter(|it| !it.is_empty()).collect();
    let more = if argument.get_num_args().is_some_and(|count| count.max_values() > 1) { "..." } else { "" };
    let word = format!("{}{more}", words.join(" "));
    if argument.is_required_set() { word } else { format!("[{word}]") }
}
