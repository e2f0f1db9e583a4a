//! Liveness: which peers have closed or died, and the report of their loss.

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags};
use rustix::process::PidfdFlags;
use towline_core::rail::{Event, Lost, Unreachable};

use super::incoming::Incoming;
use super::peer::{PeerState, PeerStatus};
use super::state::Rail;
use crate::host::Process;
use crate::segment::control::ControlSegment;

impl Rail {
    /// Whether the death of a process can be seen from here. This rail sees neither the death of its own process nor that of a
    /// process in another container, which only other rails notice.
    pub(super) fn can_watch(&self, process: &Process) -> bool {
        *process != self.identity.process && process.pid_namespace == self.identity.process.pid_namespace
    }

    /// A descriptor (pidfd) that becomes ready when a process ends. `Ok(None)` where the end of the process cannot be seen, and
    /// where the system has no descriptor to give.
    ///
    /// # Errors
    /// [`Unreachable`] where the process has ended, or cannot exist.
    pub(super) fn open_pidfd(&self, process: &Process) -> Result<Option<OwnedFd>, Unreachable> {
        if !self.can_watch(process) {
            return Ok(None);
        }
        let pid = process.raw_pid().ok_or(Unreachable::BadCard)?;
        match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            // The process id may have been given to another process before it was opened.
            Ok(pidfd) if process.is_running(&self.identity.process) != Some(false) => Ok(Some(pidfd)),
            Ok(_) | Err(rustix::io::Errno::SRCH) => {
                log::warn!("process {} has ended already", process.pid);
                Err(Unreachable::System)
            }
            Err(error) => {
                log::debug!("no descriptor for process {}: {error}", process.pid);
                Ok(None)
            }
        }
    }

    /// Checks which peers have closed and, if `processes`, whose processes have ended.
    pub(super) fn check_peers(&mut self, processes: bool) {
        (0..self.peers.len() as u32).for_each(|endpoint| self.check_peer(endpoint, processes));
    }

    /// Checks whether a peer has closed and, if `process`, whether its process has ended.
    fn check_peer(&mut self, endpoint: u32, process: bool) {
        let connected = |peer: &&PeerState| peer.status == PeerStatus::Connected;
        let Some(peer) = self.peers.get(endpoint as usize).filter(connected) else { return };
        if let Some(how) = peer.control.as_ref().and_then(ControlSegment::closed) {
            self.lose(endpoint, how);
        } else if process && self.process_has_ended(endpoint) {
            // It may have closed between the two looks.
            let closed = self.peers.get(endpoint as usize).and_then(|peer| peer.control.as_ref()?.closed());
            self.lose(endpoint, closed.unwrap_or(Lost::Broken));
        }
    }

    /// Whether a peer's process has ended. Where there is no descriptor for it yet, this tries again to open one.
    fn process_has_ended(&mut self, endpoint: u32) -> bool {
        let Some(process) = self.peers.get(endpoint as usize).map(|peer| peer.process) else { return false };
        if !self.can_watch(&process) {
            return false;
        }
        if self.peers.get(endpoint as usize).is_some_and(|peer| peer.pidfd.is_none()) {
            match self.open_pidfd(&process) {
                Ok(Some(pidfd)) => {
                    if let Some(peer) = self.peers.get_mut(endpoint as usize) {
                        peer.pidfd = Some(pidfd);
                    }
                }
                Ok(None) => return process.has_ended(&self.identity.process),
                Err(_) => return true,
            }
        }
        let pidfd = self.peers.get(endpoint as usize).and_then(|peer| peer.pidfd.as_ref());
        let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        pidfd.is_some_and(|pidfd| {
            let ended = rustix::event::poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&at_once));
            matches!(ended, Ok(count) if count > 0)
        })
    }

    /// Whether a peer has closed in order, and all its frames were read. Looks at once.
    pub(super) fn has_closed_after_frames(&mut self, endpoint: u32) -> bool {
        self.check_peer(endpoint, false);
        let status = self.peers.get(endpoint as usize).map(|peer| peer.status);
        status == Some(PeerStatus::Failing(Lost::Closed)) && !self.has_frame(endpoint)
    }

    /// Whether there are frames of a peer that were not read.
    fn has_frame(&self, endpoint: u32) -> bool {
        let has_frame =
            |ring: u32| self.rings.get(ring as usize).map(|ring| &ring.incoming).is_some_and(Incoming::has_frame);
        [endpoint * 2, endpoint * 2 + 1].into_iter().any(has_frame)
    }

    /// A peer is lost, as another rail has noticed. Returns whether this rail will report that.
    pub(super) fn end_after_frames_of(&mut self, endpoint: u32, why: Lost) -> bool {
        if self.peers.get(endpoint as usize).is_none_or(|peer| !peer.status.receives()) {
            return false;
        }
        self.lose(endpoint, why);
        true
    }

    /// Notes that a peer has closed or died. Before that, it maps the rings that the peer announced last, so that all frames of
    /// the peer are read.
    fn lose(&mut self, endpoint: u32, lost: Lost) {
        self.map_announced();
        self.fail(endpoint, lost);
    }

    /// Notes that a peer is lost; [`report`](Self::report) reports it.
    pub(super) fn fail(&mut self, endpoint: u32, lost: Lost) {
        let Some(peer) = self.peers.get_mut(endpoint as usize) else { return };
        // A peer that says why it departs may end before that is reported. The first reason counts.
        let is_known = matches!(peer.status, PeerStatus::Failing(_)) && lost != Lost::Misbehaved;
        if is_known || !peer.status.receives() {
            return;
        }
        self.to_report += u32::from(!peer.status.is_to_be_reported());
        peer.status = PeerStatus::Failing(lost);
        self.close_outgoing(endpoint);
        (self.schedule.polls_left, self.schedule.turns_left) = (0, 0);
    }

    /// Makes all further frames to a peer take the slow path, which refuses them.
    pub(super) fn close_outgoing(&mut self, endpoint: u32) {
        for ring in [endpoint * 2, endpoint * 2 + 1] {
            if let Some(outgoing) = self.rings.get_mut(ring as usize).map(|ring| &mut ring.outgoing) {
                outgoing.len_bound = 0;
            }
        }
    }

    /// Reports one peer that was left or lost. A peer that was lost is reported when all its frames were read, or at once if it
    /// violated the protocol.
    pub(super) fn report(&mut self) -> Option<Event> {
        for endpoint in 0..self.peers.len() as u32 {
            let Some(peer) = self.peers.get_mut(endpoint as usize) else { continue };
            if let PeerStatus::Left { reported } = &mut peer.status
                && !std::mem::replace(reported, true)
            {
                self.to_report -= 1;
                return Some(Event::Down(peer.peer, Lost::NoRoom));
            }
            let PeerStatus::Failing(lost) = peer.status else { continue };
            if lost != Lost::Misbehaved && self.has_frame(endpoint) {
                continue;
            }
            let Some(peer) = self.peers.get_mut(endpoint as usize) else { continue };
            peer.status = PeerStatus::LossReported;
            let event = Event::Lost(peer.peer, lost);
            self.to_report -= 1;
            self.close_rings(endpoint);
            return Some(event);
        }
        None
    }

    /// Whether any peer's process has to be looked at from time to time.
    pub(super) fn has_peers_to_watch(&self) -> bool {
        self.to_report != 0
            || self.peers.iter().any(|peer| peer.status == PeerStatus::Connected && self.can_watch(&peer.process))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};

    use rustix::process::{Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
    use towline_core::rail::{Lane, Peer, Rail as _, Shape};
    use towline_core::time::Instant;

    use super::*;
    use crate::Config;

    /// Starts this program again, in a role.
    fn process(role: &str, job: u64) -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "rail::liveness::tests::as_process", "--nocapture", "--ignored"]);
        command.env("ROLE", role).env("JOB", job.to_string()).stdin(Stdio::null());
        command.stdout(if role == "victim" { Stdio::piped() } else { Stdio::inherit() }).spawn().unwrap()
    }

    #[test]
    #[ignore = "started by the other tests as their processes"]
    fn as_process() {
        let Ok(role) = std::env::var("ROLE") else { return };
        let job = std::env::var("JOB").unwrap().parse().unwrap();
        match role.as_str() {
            "victim" => {
                let rail = Rail::open(Config::new(job, 1, 2)).unwrap();
                let card: String = rail.card().iter().map(|byte| format!("{byte:02x}")).collect();
                println!("\n@ {card}");
                loop {
                    std::thread::park();
                }
            }
            "watcher" => watcher(job),
            "waker" => waker(job),
            other => panic!("no role {other}"),
        }
    }

    /// Starts the victim. The child, and its card.
    fn victim(job: u64) -> (Child, Vec<u8>) {
        let mut child = process("victim", job);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let digits = lines.into_iter().find_map(|line| line.strip_prefix("@ ").map(str::to_owned)).unwrap();
        let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
        (child, (0..digits.len()).step_by(2).map(byte).collect())
    }

    /// Leaves this process no file descriptors. The limit before.
    fn exhaust_descriptors() -> Rlimit {
        let before = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..before }).unwrap();
        assert!(std::fs::File::open("/dev/null").is_err());
        before
    }

    /// Polls for `checks` checks of processes; the loss that was reported.
    fn poll(rail: &mut Rail, now: &mut Instant, checks: u32) -> Option<Event> {
        (0..checks).find_map(|_| {
            *now = *now + towline_core::time::Duration::from_millis(1000);
            (rail.schedule.polls_left, rail.schedule.turns_left) = (0, 0); // the next poll checks processes
            rail.poll(*now)
        })
    }

    fn watcher(job: u64) {
        let mut rail = Rail::open(Config::new(job, 0, 2)).unwrap();
        let mut now = Instant::ZERO;
        let (mut child, card) = victim(job);
        let to = rail.add_peer(Peer(1), &card).unwrap();
        assert!(rail.peers[to.0 as usize].pidfd.take().is_some());
        let before = exhaust_descriptors();
        let process = rail.peers[to.0 as usize].process;
        assert_eq!(
            (process.is_running(&rail.identity.process), process.has_ended(&rail.identity.process)),
            (None, false)
        );
        assert!(rail.poll_at().is_some() && poll(&mut rail, &mut now, 10).is_none());
        assert!(rail.peers[to.0 as usize].pidfd.is_none());
        // As soon as there are descriptors again, the peer has a pidfd.
        setrlimit(Resource::Nofile, before).unwrap();
        assert!(poll(&mut rail, &mut now, 10).is_none());
        assert!(rail.peers[to.0 as usize].pidfd.take().is_some());
        let before = exhaust_descriptors();
        kill_process(rustix::process::Pid::from_child(&child), Signal::KILL).unwrap();
        // The child is not reaped, so its process id is still taken.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(300);
        let lost = loop {
            match poll(&mut rail, &mut now, 1) {
                None => assert!(std::time::Instant::now() < until, "its death was not noticed"),
                Some(event) => break event,
            }
        };
        assert!(matches!(lost, Event::Lost(Peer(1), Lost::Broken)), "{lost:?}");
        setrlimit(Resource::Nofile, before).unwrap();
        child.wait().unwrap();
        exhaust_descriptors();
        assert!(process.has_ended(&rail.identity.process));
        assert!(!rail.identity.process.has_ended(&rail.identity.process));
    }

    /// Wakes a peer that sleeps on its descriptor, without a descriptor to open the peer's pipe.
    fn waker(job: u64) {
        let [mut left, mut right] = [0, 1].map(|rank| Rail::open(Config::new(job, rank, 2)).unwrap());
        let to = left.add_peer(Peer(1), right.card()).unwrap();
        right.add_peer(Peer(0), left.card()).unwrap();
        let send = |left: &mut Rail| {
            let shape = Shape { tag: 1, lane: Lane::Eager, header: 0, len: 8 };
            let ticket = left.reserve(to, shape).unwrap().finish();
            left.commit(ticket);
        };
        send(&mut left);
        let mut now = Instant::ZERO;
        assert!(matches!(poll(&mut right, &mut now, 10), Some(Event::Frame(_))));
        right.wait_fd().unwrap();
        assert!(right.arm());
        let before = exhaust_descriptors();
        send(&mut left);
        let sleeps = right.control.sleep().load(crate::atomics::Ordering::Relaxed);
        assert_eq!((sleeps, left.waiting.owes_wakes), (crate::sleep::ON_FD, true), "it still sleeps");
        setrlimit(Resource::Nofile, before).unwrap();
        assert!(poll(&mut left, &mut now, 1).is_none() && !left.waiting.owes_wakes);
        let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let pipe = right.wait_fd().unwrap();
        assert_eq!(rustix::event::poll(&mut [PollFd::new(&pipe, PollFlags::IN)], Some(&at_once)), Ok(1));
    }

    #[test]
    fn a_peer_that_cannot_be_woken_for_lack_of_descriptors_is_woken_later() {
        let job = 0x0A4E_0000_0000 | u64::from(std::process::id());
        assert!(process("waker", job).wait().unwrap().success());
    }

    #[test]
    fn p1_b10_without_descriptors_the_death_of_a_process_is_still_noticed() {
        let job = 0x0DE5_0000_0000 | u64::from(std::process::id());
        let watched = process("watcher", job).wait().unwrap();
        crate::segment::stale::remove_stale(std::path::Path::new("/dev/shm"), &Process::current());
        assert!(watched.success());
    }
}
