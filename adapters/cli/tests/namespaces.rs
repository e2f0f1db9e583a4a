//! `towline run` over several hosts. Network namespaces take the place of hosts: they have no loopback, Unix socket or
//! port in common. Making them needs root; without root the test says so and passes.

use std::io::Write;
use std::process::{Command, Output};

use towline_bootstrap::Job;
use towline_core::modex::{Component, Version};

const V: Version = Version::new(1, 0, 0);
const TCP: Component = Component { mca: V, kind: "btl", kind_version: V, name: "tcp", version: V };

/// The roles of ranks that this file starts. Without a role, as in a normal test run, it does nothing.
#[test]
fn as_rank() {
    if std::env::var_os("ROLE").is_none() {
        return;
    }
    let soon = std::time::Instant::now() + std::time::Duration::from_secs(300);
    let mut job = Job::from_env().unwrap();
    job.publish(&TCP, job.host().to_string().as_bytes()).unwrap();
    job.exchange(soon).unwrap();
    let hosts: Vec<_> = (0..job.size()).map(|peer| String::from_utf8_lossy(job.card(&TCP, peer).unwrap())).collect();
    println!("all hosts: {}", hosts.join(" "));
    job.finish().unwrap();
    std::process::exit(0);
}

/// Two namespaces with a link between them. They are removed with this value.
struct Namespaces([String; 2]);

impl Namespaces {
    fn new() -> Option<Self> {
        let id = std::process::id();
        let this = Self([format!("towline{id}a"), format!("towline{id}b")]);
        let [a, b] = &this.0;
        let (va, vb) = (format!("tl{id}a"), format!("tl{id}b"));
        for line in [
            format!("netns add {a}"),
            format!("netns add {b}"),
            format!("link add {va} netns {a} type veth peer name {vb} netns {b}"),
            format!("-n {a} addr add 10.213.7.1/24 dev {va}"),
            format!("-n {b} addr add 10.213.7.2/24 dev {vb}"),
            format!("-n {a} link set {va} up"),
            format!("-n {b} link set {vb} up"),
        ] {
            let done = Command::new("ip").args(line.split(' ')).output();
            if !done.is_ok_and(|output| output.status.success()) {
                return None;
            }
        }
        Some(this)
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}

fn run(namespaces: &Namespaces, arguments: &[&str]) -> Output {
    let [a, b] = &namespaces.0;
    let hosts = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{a}-hosts"));
    std::fs::write(&hosts, format!("localhost\n{b} slots=2\n")).unwrap();
    let output = Command::new("ip")
        .args(["netns", "exec", a, env!("CARGO_BIN_EXE_towline"), "run", "--rsh", "ip netns exec", "--hosts"])
        .arg(&hosts)
        .args(arguments)
        .output()
        .unwrap();
    let _ = std::fs::remove_file(&hosts);
    output
}

#[test]
fn ranks_in_several_namespaces_find_each_other_and_end_together() {
    let Some(namespaces) = Namespaces::new() else {
        // Written directly, since the test runner hides the output of tests that pass.
        let _ = writeln!(std::io::stderr(), "skipped a test: network namespaces need the rights of root, and iproute2");
        return;
    };
    let me = std::env::current_exe().unwrap();
    let rank = ["-e", "ROLE=rank", "--", me.to_str().unwrap(), "--exact", "as_rank", "--nocapture"];
    let output = run(&namespaces, &rank);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let b = &namespaces.0[1];
    assert_eq!(output.status.code(), Some(0), "{out}{err}");
    assert_eq!(out.matches(&format!("all hosts: localhost {b} {b}")).count(), 3, "{out}{err}");

    let output = run(&namespaces, &["--", "sh", "-c", "[ $TOWLINE_RANK = 2 ] && kill -KILL $$; exec sleep 1000"]);
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(128 + 9), "{err}");
    assert!(err.contains("rank 2 (pid ") && err.contains(&format!("on {b}) was killed by signal 9")), "{err}");
}
