//! `towline completions` and `towline man`: texts for shells and manual pages, generated from the commands.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Command;
use clap_complete::Shell;

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
    let written = std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(visible(command), folder));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("towline: cannot write manual pages into {}: {why}", folder.display());
            ExitCode::FAILURE
        }
    }
}

/// The command with its visible subcommands only. The hidden ones are for processes that Towline starts itself.
fn visible(command: &Command) -> Command {
    let mut visible = Command::new("towline").disable_help_subcommand(true).version(crate::version::NUMBER);
    if let Some(about) = command.get_about() {
        visible = visible.about(about.clone());
    }
    let shown = command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
    visible.subcommands(shown.cloned())
}
