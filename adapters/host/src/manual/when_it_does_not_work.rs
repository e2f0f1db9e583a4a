//! When it does not work: from what you see to the cause, with the commands that show it.
//!
//! Start with the table for what you see: [a hang](#the-job-hangs), [an exit status](#the-job-ends-with-a-status),
//! [a message](#a-message), or [a slow job](#the-job-is-slow). The section [reports](#reports) explains what the launcher
//! prints about waiting ranks.
//!
//! # The job hangs
//!
//! First ask all ranks what they wait for. In a terminal press `Ctrl-\`, or send SIGQUIT to the launcher from another one:
//!
//! ```text
//! kill -QUIT $(pgrep -nx towline)     # the newest launcher of this user; the job goes on
//! ```
//!
//! | the report says | cause | what to do |
//! |---|---|---|
//! | `probable deadlock: rank 0 waits in recv (tag 7) for rank 1, rank 1 waits in recv (tag 9) for rank 0` | these ranks wait for each other: no message can come | let one of them send first, or use [`sendrecv`](crate::Communicator::sendrecv) |
//! | the same with `send` in place of `recv` | Both send a long message, and neither receives. A long message leaves only after its receive was posted | the same. A program that relies on short messages leaving at once works until the messages grow |
//! | `rank 0 waits for tag 7 of rank 1, and a message of that rank with tag 5 was not received` | the tags of send and receive differ, or their communicators do | compare the `not received` lines with the waits |
//! | `waits in recv ... for rank 1, which is in finish` | rank 1 has sent all that it will send | one rank expects a message more than another one sends: look at the ends of loops |
//! | `waits in barrier: rank 2 has not come to the same step` | A rank does not call the collective operation. Its own line says what it does instead | all ranks of a communicator must call collective operations in the same order |
//! | `did not answer: it is not inside Towline` | the rank computes, is stopped (`SIGSTOP`, a debugger), or waits in another library | `ps -o stat,wchan,cmd -p PID`; `gdb -p PID -batch -ex 'thread apply all bt'` |
//! | `calls Towline again and again without waiting` | the program polls for something that does not come | the lines below show what is in progress and what was not received |
//! | `awaits future: not an operation of Towline` | [`block_on`](crate::World::block_on) runs a future that waits for something else, for example a channel | look at the code that should wake it |
//! | `starts: module exchange: no publications arrived from rank 3` | rank 3 does not start, or does not call [`init`](crate::init) | its own line; its output; the host on which it runs |
//! | `has not joined the job` | the program does something else before [`init`](crate::init), or is not a program of Towline | start `init` earlier |
//! | `send: ... held back: the peer has no room for it` | the receiver has more unexpected messages than it has memory for | post the receives earlier, or raise `TOWLINE_UNEXPECTED` and `TOWLINE_UNITS`: see [tuning](super::tuning) |
//! | `waits in one-sided operation: it uses memory of rank 1` | rank 1 makes no progress, and its transport needs that for one-sided operations | let it call the library, or set `TOWLINE_PROGRESS_THREAD=always`: see [one-sided operations](super::one_sided) |
//!
//! If the launcher itself does not answer: with `--hosts`, the remote shell may ask for a password. The launcher uses `ssh -o
//! BatchMode=yes`, and gives up after 60 s. `ssh HOST true` shows the reason.
//!
//! To get the report without a terminal, for example in a batch system, give the job a limit: `towline run --timeout 600`. The
//! launcher prints the report when the limit has passed, and then ends the job. With `TOWLINE_STALL_TIMEOUT_MS` a rank that
//! makes no progress counts as dead: see [faults](super::faults).
//!
//! # The job ends with a status
//!
//! `echo $?` after `towline run` shows it. The launcher's last lines name the rank and the cause.
//!
//! | status | means | what to do |
//! |---|---|---|
//! | 0 | all ranks ended well. A warning about messages that were never received may be above | |
//! | 1 | a rank returned an error, called [`abort`](crate::World::abort) with 1, or closed its connection to the launcher and went on. Or `TOWLINE_UNMATCHED=error` found messages that were never received | read the line that names the rank |
//! | 101 | a rank panicked | the text is in the rank's output; `-e RUST_BACKTRACE=1` adds the place |
//! | 124 | the limit of `--timeout` has passed | read the report above the last line |
//! | 126, 127 | the program cannot be started: it is not executable, or does not exist | check the path. On other hosts it must exist under the same path |
//! | 2 | the job cannot be started: wrong options, too few slots, no descriptors | the message says which |
//! | 128 + n | a rank was killed by signal n: 137 is SIGKILL, often by a lack of memory; 139 is SIGSEGV; 135 is SIGBUS; 153 is SIGXFSZ (`ulimit -f`) | `dmesg \| tail` shows kills for lack of memory |
//! | 141 | the reader of the launcher's output has closed it, as `\| head` does | |
//!
//! # A message
//!
//! | message | cause | what to do |
//! |---|---|---|
//! | `there is no rank 1: the communicator has 1` | the program was started without a launcher, and is a job of one rank | `towline run -n 2 -- PROGRAM` |
//! | `N messages were never received` at the end | Some rank did not receive what another one has sent. The line names the longest message, its ranks and its tag | Receive them, or do not send them. `-e TOWLINE_UNMATCHED=error` makes this an error in tests, `ignore` silences it |
//! | [`PeerFailed`](crate::Error::PeerFailed): a rank was lost | the rank has died, or no path to it is left | [`why_lost`](crate::Communicator::why_lost) gives the reason. The launcher names the rank that failed first: see [faults](super::faults) |
//! | [`PeerFinished`](crate::Error::PeerFinished) | a message was to be sent to a rank that has finished, or to be received from it | the two programs do not agree how many messages there are |
//! | [`Truncated`](crate::Error::Truncated) | the message is longer than the memory of the receive | use [`recv_vec`](crate::Communicator::recv_vec), or [`probe`](crate::Communicator::probe) first |
//! | [`Busy`](crate::Error::Busy) | more operations are in progress than `TOWLINE_REQUESTS` | wait for some, or raise it |
//! | [`SetupError::Finish`](crate::SetupError::Finish) | some rank did not call [`finish`](crate::World::finish) in time | The launcher printed a report one second after the first rank began to wait. `TOWLINE_FINISH_TIMEOUT_MS` is the limit |
//! | `transport NAME does not work here` | for example `/dev/shm` is full or missing, or there is no network interface | `towline info` says for each transport whether it works here, and why not |
//! | [`SetupError::Unreachable`](crate::SetupError::Unreachable): no transport reaches a rank | the ranks name different transports, or have no network in common | The message has the verdict on each transport. [`transport_report`](crate::World::transport_report) and `towline info` say the same |
//! | `refused a connection from ...` by the launcher | A process that does not belong to the job has connected, for example a rank of an earlier job | nothing, if it is rare: the job goes on |
//! | `it uses another version of the protocol` | launcher and program were built from different versions | build both from one |
//! | `too many open files`, `raise the limit (ulimit -n)` | each pair of ranks that communicates needs descriptors | raise the limit of the shell and of the other hosts |
//! | `the system refuses an eventfd`, `cannot map memory` | limits of the process | `ulimit -a` |
//!
//! A warning of the library goes to the logger of the program (crate `log`). Without a logger it is lost. So add one, for
//! example `env_logger`, and set `RUST_LOG=towline=debug`.
//!
//! # The job is slow
//!
//! | you see | likely cause | the command that shows it |
//! |---|---|---|
//! | all messages are slow | tcp is used where sm was expected | `towline info`, or [`transport_report`](crate::World::transport_report) in the program |
//! | long messages are slow within a host | single copies by the kernel are switched on, and slower here than rings | the same: the line of the rank says how long messages are copied |
//! | nobody knows what to expect | | `towline perf` measures each transport beside the limit of this machine: see [measuring](super::measuring) |
//! | more ranks than processors | waiting ranks sleep instead of polling, and are woken one after the other | `nproc`, `towline info` |
//! | other programs run on the same processors | a rank that yields or sleeps waits for its turn. Ranks that are bound to a processor each suffer least | `top`; `towline run --bind-to core` |
//! | a rank sends and then computes, over udp | the progress thread is off | [`progress_thread`](crate::World::progress_thread) |
//!
//! # Reports
//!
//! The launcher prints a report of all ranks in three cases:
//!
//! - it gets SIGQUIT. The job goes on, as a Java program does;
//! - the limit of `--timeout` has passed, before the job is ended;
//! - a rank has waited in [`finish`](crate::World::finish) for more than a second (`TOWLINE_FINISH_REPORT_MS`). This is printed
//!   once in a job. It is no error: another rank may just have more to do.
//!
//! ```text
//! towline: report of all ranks (SIGQUIT)
//! towline: [0] waits in recv for 3.2 s: a message from rank 1 with tag 7 in the world, room for 8 bytes
//! towline: [0] not received: 1 message from rank 1 with tag 5 in the world, 10 bytes
//! towline: [1] waits in recv for 3.2 s: a message from rank 0 with tag 9 in the world, room for 8 bytes
//! towline: [2-3] waits in barrier: rank 0 has not come to the same step, in the world
//! towline: [2-3] these 2 ranks wait for up to 3.1 s
//! towline: probable deadlock: rank 0 waits in recv (tag 7) for rank 1, rank 1 waits in recv (tag 9) for rank 0
//! towline: rank 0 waits for tag 7 of rank 1, and a message of that rank with tag 5 was not received: check ...
//! towline: end of the report
//! ```
//!
//! Ranks are those of the world. A communicator that [`dup`](crate::Communicator::dup) or
//! [`split`](crate::Communicator::split) made has a number, which is also in its `Debug` text.
//!
//! **Who answers.** A rank answers from inside of a call: a waiting rank at the latest when it next wakes
//! (`TOWLINE_IDLE_SLEEP_MS`, half a second), a polling one within a tenth of a second. A [progress
//! thread](super::threads) answers for a program that computes. A rank that does not answer within `--report-wait` (3 s) is not
//! inside the library. A time in a report begins when the wait does.
//!
//! **What a deadlock is.** Ranks that wait in a circle, where no rank of it computes or polls, and no matching message is on its
//! way. Waits below 0.2 s do not count. A receive from any rank waits for all others. It is a *probable* deadlock, since the
//! answers are not of one moment, and since another thread of a rank may go on.
//!
//! **JSON.** `towline run --report-file FILE` appends each report to a file, as a line of JSON. Its keys: `reason`, `ranks` (with
//! `rank`, `pid`, `host`, `state` and `reports`), `deadlocks` (lists of contexts that wait for each other) and `waits_for_ended`.
//!
//! **In the program.** [`World::report`](crate::World::report) returns the report of this rank as a value, with the same text and
//! JSON. It shows what the other threads wait for, and what was not received:
//!
//! ```
//! let world = towline::init()?;
//! world.send(0, 5, b"surplus")?;
//! world.progress();
//! let report = world.report();
//! assert_eq!(report.unreceived[0].tag, 5);
//! println!("{report}"); // rank 0 not received: 1 message from rank 0 with tag 5 in the world, 7 bytes
//! # world.recv(0, 5, &mut [0u8; 7])?;
//! # world.finish()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Messages that nobody received
//!
//! When all ranks have finished, each counts the messages that no receive has taken, and the launcher prints their sum once. All
//! messages have arrived by then: before the last barrier each rank waits until those that it has sent were seen by their
//! receivers. Messages of a dropped communicator count. A message that a [matched probe](crate::Communicator::mprobe) took and
//! that was then dropped does not count: the program has discarded it. A job that fails prints nothing about them. In a program
//! without a launcher each rank prints its own. For `TOWLINE_UNMATCHED=error`, or
//! [`Config::unmatched`](crate::Config::unmatched), `finish` returns [`SetupError::Unmatched`](crate::SetupError::Unmatched), and
//! the job ends with status 1.
