//! The launcher's side of an agent.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use super::children::attach;
use super::message::{self, Order, Report};
use super::output::{Sink, Source};

/// Remote shells that join the words of a command with blanks, for a shell at the other side to take apart again. All
/// others are taken to pass words on as they are, as `ip netns exec` does.
const JOINING_SHELLS: [&str; 4] = ["ssh", "rsh", "remsh", "slogin"];

/// A remote shell with an agent behind it.
pub(super) struct Remote {
    shell: Child,
    /// Closed to tell the agent that the launcher is gone.
    orders: Option<ChildStdin>,
    /// When the agent must have reported; `None` after it has.
    pub(super) ready_until: Option<Instant>,
}

/// What a thread that reads an agent tells.
pub(super) enum Told {
    Report(Report),
    /// The remote shell said this before the agent, if there is one, was there.
    Noise(Vec<u8>),
    /// Nothing more will come.
    Closed,
}

impl Remote {
    /// Runs `shell host agent...` for some ranks, and reads what comes back in a thread, which gives output to `sink` and
    /// the rest to `tell`.
    pub(super) fn start(
        shell: &[String],
        (host, ranks): (&str, Vec<u32>),
        agent: &[OsString],
        ready_until: Instant,
        sink: Arc<dyn Sink>,
        tell: impl Fn(Told) + Send + 'static,
    ) -> io::Result<Self> {
        let (program, args) = shell.split_first().ok_or_else(|| io::Error::other("the remote shell has no name"))?;
        let mut command = Command::new(program);
        let joins =
            Path::new(program).file_name().is_some_and(|name| JOINING_SHELLS.iter().any(|known| name == *known));
        let agent = agent.iter().map(|word| if joins { quoted(word) } else { word.clone() });
        command.args(args).arg(host).args(agent).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        attach(&mut command);
        let mut shell = command.spawn()?;
        let orders = shell.stdin.take();
        let mut from = shell.stdout.take().ok_or_else(|| io::Error::other("no pipe"))?;
        std::thread::Builder::new().name(format!("towline-{host}")).spawn(move || {
            if let Ok((noise, marked)) = message::skip_to_mark(&mut from) {
                if !noise.is_empty() {
                    tell(Told::Noise(noise));
                }
                while marked && let Ok(Some(report)) = message::read(&mut from) {
                    match report {
                        Report::Output { rank, source, bytes } => sink.output(rank, source, &bytes),
                        Report::OutputEnd { rank, source } => sink.end(rank, source),
                        other => tell(Told::Report(other)),
                    }
                }
            }
            for rank in ranks {
                sink.end(rank, Source::Stdout);
                sink.end(rank, Source::Stderr);
            }
            tell(Told::Closed);
        })?;
        Ok(Self { shell, orders, ready_until: Some(ready_until) })
    }

    /// Gives an order; an agent that is gone is found out when its stream closes.
    pub(super) fn order(&mut self, order: &Order) {
        if let Some(orders) = &mut self.orders {
            let _ = message::write(orders, order);
        }
    }

    /// How the remote shell ended, if it has.
    pub(super) fn ended(&mut self) -> Option<String> {
        self.shell.try_wait().ok().flatten().map(|status| status.to_string())
    }

    /// Lets the agent go, which kills its ranks if any are left, and the remote shell with it.
    pub(super) fn kill(&mut self) {
        self.orders = None;
        let _ = self.shell.kill();
        let _ = self.shell.try_wait();
    }
}

/// A word as a shell must see it to read this one.
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
    fn a_shell_reads_back_the_word() {
        for word in ["/usr/bin/towline", "it's $HOME; `x` \"y\" \\ *", "a b\nc", "-v", "~", "!"] {
            let mut line = OsString::from("printf %s ");
            line.push(quoted(word.as_ref()));
            let output = Command::new("sh").arg("-c").arg(line).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), word);
        }
        assert_eq!(quoted("/opt/a-b/run".as_ref()), "/opt/a-b/run");
    }
}
