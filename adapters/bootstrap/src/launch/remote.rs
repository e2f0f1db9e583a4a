//! The launcher's connection to an agent.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use super::children::prepare_child;
use super::lines::Source;
use super::message::{self, Order, Report};
use super::output::Sink;

/// Remote shells that join the words of a command with blanks and pass the line to a shell on the other host. All other
/// commands are expected to pass words unchanged, as `ip netns exec` does.
const JOINING_SHELLS: [&str; 4] = ["ssh", "rsh", "remsh", "slogin"];

/// A remote shell that runs an agent.
pub(super) struct Remote {
    shell: Child,
    /// Closing it tells the agent that the launcher has ended.
    orders: Option<ChildStdin>,
    /// Time by which the agent must have reported. `None` after it has.
    pub(super) ready_until: Option<Instant>,
}

/// An event from the thread that reads an agent's reports.
pub(super) enum RemoteEvent {
    Report(Report),
    /// Text that the remote shell printed before the agent's first output.
    StartupText(Vec<u8>),
    /// The stream has ended.
    Closed,
}

impl Remote {
    /// Runs `shell host agent...` for some ranks. A thread reads the messages of the agent. It passes output to `sink`
    /// and all other messages to `tell`.
    pub(super) fn start(
        shell: &[String],
        (host, ranks): (&str, Vec<u32>),
        agent: &[OsString],
        ready_until: Instant,
        sink: Arc<dyn Sink>,
        tell: impl Fn(RemoteEvent) + Send + 'static,
    ) -> io::Result<Self> {
        let mut command = remote_command(shell, host, agent)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        prepare_child(&mut command);
        let mut shell = command.spawn()?;
        let orders = shell.stdin.take();
        let mut from = shell.stdout.take().ok_or_else(|| io::Error::other("the remote shell has no output pipe"))?;
        std::thread::Builder::new().name(format!("towline-{host}")).spawn(move || {
            if let Ok((text, marked)) = message::skip_to_mark(&mut from) {
                if !text.is_empty() {
                    tell(RemoteEvent::StartupText(text));
                }
                while marked && let Ok(Some(report)) = message::read(&mut from) {
                    match report {
                        Report::Output { rank, source, bytes } => sink.output(rank, source, &bytes),
                        Report::OutputEnd { rank, source } => sink.end(rank, source),
                        other => tell(RemoteEvent::Report(other)),
                    }
                }
            }
            for rank in ranks {
                sink.end(rank, Source::Stdout);
                sink.end(rank, Source::Stderr);
            }
            tell(RemoteEvent::Closed);
        })?;
        Ok(Self { shell, orders, ready_until: Some(ready_until) })
    }

    /// Sends an order. If the agent has ended, its stream closes, which is handled there.
    pub(super) fn order(&mut self, order: &Order) {
        if let Some(orders) = &mut self.orders {
            let _ = message::write(orders, order);
        }
    }

    /// The exit status of the remote shell, if it has ended.
    pub(super) fn ended(&mut self) -> Option<String> {
        self.shell.try_wait().ok().flatten().map(|status| status.to_string())
    }

    /// Disconnects the agent, which then kills its remaining ranks, and kills the remote shell.
    pub(super) fn kill(&mut self) {
        self.orders = None;
        let _ = self.shell.kill();
        let _ = self.shell.try_wait();
    }
}

/// The command that runs a command on another host, as the launcher runs its agents.
///
/// # Errors
/// If `shell` is empty.
pub fn remote_command(shell: &[String], host: &str, words: &[OsString]) -> io::Result<Command> {
    let (program, args) = shell.split_first().ok_or_else(|| io::Error::other("the remote shell command is empty"))?;
    let mut command = Command::new(program);
    let joins = Path::new(program).file_name().is_some_and(|name| JOINING_SHELLS.iter().any(|known| name == *known));
    let words = words.iter().map(|word| if joins { quoted(word) } else { word.clone() });
    command.args(args).arg(host).args(words);
    Ok(command)
}

/// Quotes a word for a shell.
fn quoted(word: &OsStr) -> OsString {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+=:,@%".contains(byte);
    let bytes = word.as_bytes();
    if !bytes.is_empty() && bytes.iter().all(plain) {
        return word.into();
    }
    let mut quoted = vec![b'\''];
    for byte in bytes {
        match byte {
            b'\'' => quoted.extend_from_slice(br"'\''"),
            other => quoted.push(*other),
        }
    }
    quoted.push(b'\'');
    OsString::from_vec(quoted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_the_word_back() {
        for word in ["/usr/bin/towline", "it's $HOME; `x` \"y\" \\ *", "a b\nc", "-v", "~", "!"] {
            let mut line = OsString::from("printf %s ");
            line.push(quoted(word.as_ref()));
            let output = Command::new("sh").arg("-c").arg(line).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), word);
        }
        assert_eq!(quoted("/opt/a-b/run".as_ref()), "/opt/a-b/run");
    }
}
