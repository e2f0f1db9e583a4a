//! The version, and what is generated from the commands: completions and manual pages.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

#[path = "../build.rs"]
#[allow(dead_code, reason = "`main` is for cargo")]
mod build;

fn towline(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_towline")).args(arguments).output().unwrap()
}

fn out(arguments: &[&str]) -> String {
    let output = towline(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_version_names_commit_features_and_wire_version() {
    let text = out(&["--version"]);
    assert!(text.starts_with(concat!("towline ", env!("CARGO_PKG_VERSION"), "\n")), "{text}");
    let of = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).unwrap().trim().to_string();
    assert_eq!(of("wire version"), towline_core::wire::VERSION.to_string());
    assert_eq!(of("features").contains("sim"), cfg!(feature = "sim"));
    // In a repository, the commit is that of git; elsewhere it may be unknown.
    let git = Command::new("git").args(["-C", env!("CARGO_MANIFEST_DIR"), "rev-parse", "HEAD"]).output();
    let head = git.ok().filter(|git| git.status.success()).map(|git| String::from_utf8(git.stdout).unwrap());
    let commit = of("commit");
    match head {
        Some(head) if commit != "unknown" => assert_eq!(commit, head[..12]),
        _ => assert!(commit == "unknown" || commit.len() == 12, "{commit}"),
    }
    assert_eq!(out(&["-V"]), concat!("towline ", env!("CARGO_PKG_VERSION"), "\n"));
    for command in ["run", "perf", "soak"] {
        let of_command = format!("towline-{command} {}\n", env!("CARGO_PKG_VERSION"));
        assert_eq!(out(&[command, "-V"]), of_command);
        assert!(out(&[command, "--version"]).starts_with(&of_command));
    }
}

#[test]
fn completions_know_commands_and_options_but_no_hidden_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = out(&["completions", shell]);
        for word in ["run", "perf", "doctor", "bind-to", "tag-output"] {
            assert!(text.contains(word), "{shell} lacks {word}");
        }
        for hidden in ["perf-rank", "soak-rank", "info-rank", "doctor-rank", "agent", "loopback"] {
            assert!(!text.contains(hidden), "{shell} has {hidden}");
        }
    }
    let output = towline(&["completions", "tcl"]);
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("bash"));
}

/// The shells themselves must accept the texts.
#[test]
fn bash_completes_commands_and_names_of_values() {
    let text = out(&["completions", "bash"]);
    for (words, completed) in [
        ("do", "doctor"),
        ("run --bind-to ''", "core none"),
        ("run --map-by ''", "slot core node"),
        ("run --stdin ''", "all none"),
        ("run --transport ''", "sm tcp udp verbs dpu dpu-frames"),
        ("run --transport t", "tcp"),
        ("soak --transport ''", "sm tcp udp"),
        ("dpu u", "up"),
        ("dpu up --board ''", "linux virt-aarch64 virt-riscv64"),
        ("dpu up --protocol ''", "udp ethernet"),
    ] {
        let line = format!(
            "{text}\nCOMP_WORDS=(towline {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
            _towline towline \"${{COMP_WORDS[-1]}}\" \"${{COMP_WORDS[-2]}}\"; echo \"${{COMPREPLY[@]}}\""
        );
        let output = Command::new("bash").args(["--norc", "-c", &line]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim_end(), completed, "{words}: {said}");
    }
}

#[test]
fn suggestions_name_no_hidden_commands() {
    for (wrong, suggested) in [("infoo", Some("'info'")), ("perf-rankk", Some("'perf'")), ("info-rankk", None)] {
        let output = towline(&[wrong]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(!said.contains("rank'") && !said.contains("similar subcommands"), "{said}");
        assert!(suggested.is_none_or(|name| said.contains(name)), "{said}");
    }
}

#[test]
fn each_command_has_a_manual_page() {
    let folder = format!("{}/man-{}/man1", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    out(&["man", &folder]);
    let mut pages: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|page| page.unwrap().file_name().into_string().unwrap()).collect();
    pages.sort();
    let commands = ["completions", "doctor", "dpu-log", "dpu-up", "dpu", "info", "man", "perf", "run", "soak"];
    let wanted: Vec<_> =
        commands.map(|command| format!("towline-{command}.1")).into_iter().chain(["towline.1".into()]).collect();
    assert_eq!(pages, wanted);
    let page = std::fs::read_to_string(format!("{folder}/towline-run.1")).unwrap();
    assert!(page.contains(".TH") && page.contains("bind\\-to"), "{page}");
    for part in ["[\\-n|\\-\\-ranks N]", "[\\-\\-hosts FILE]", "[\\-\\-keep\\-going]", " PROGRAM..."] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("\\-\\-agent"), "{page}");
    let page = std::fs::read_to_string(format!("{folder}/towline-dpu-up.1")).unwrap();
    assert!(page.contains("towline dpu up\\fR \\-n|\\-\\-ranks N ["), "{page}");
    std::fs::remove_dir_all(&folder).unwrap();
    for (path, words) in
        [("/proc/nowhere", "man /proc/nowhere: cannot write"), ("/etc/passwd", "a directory is needed")]
    {
        let output = towline(&["man", path]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(words), "{said}");
    }
}

#[test]
fn the_commit_is_found_without_git_in_a_package_a_clone_and_a_work_tree() {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("commits-{}", std::process::id()));
    // A process with the same number may have left one.
    let _ = fs::remove_dir_all(&root);
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let commit = |path: &str| build::commit(&root.join(path));
    let hash = |digit: &str| digit.repeat(40);
    let short = |digit: &str| Some(digit.repeat(12));

    write("package/.cargo_vcs_info.json", &format!("{{\n  \"git\": {{\n    \"sha1\": \"{}\"\n  }}\n}}", hash("a")));
    assert_eq!(commit("package"), short("a"));
    // Without the repository of this project around it, the commit is unknown.
    write("copy/adapters/cli/Cargo.toml", "");
    assert_eq!(commit("copy/adapters/cli"), None);
    // Another repository that contains the crate.
    write("other/.git/HEAD", &hash("b"));
    write("other/vendor/towline-cli/Cargo.toml", "");
    assert_eq!(commit("other/vendor/towline-cli"), None);
    write("other/adapters/cli/Cargo.toml", "");
    assert_eq!(commit("other/adapters/cli"), None);

    write("clone/core/WIRE.md", "");
    write("clone/adapters/cli/Cargo.toml", "");
    assert_eq!(commit("clone/adapters/cli"), None, "no repository");
    write("clone/.git/HEAD", &format!("{}\n", hash("c")));
    assert_eq!(commit("clone/adapters/cli"), short("c"), "no branch is checked out");
    write("clone/.git/HEAD", "ref: refs/heads/main\n");
    assert_eq!(commit("clone/adapters/cli"), None, "a branch without a commit");
    write(
        "clone/.git/packed-refs",
        &format!("# pack-refs\n{} refs/heads/not/main\n{} refs/heads/main\n", hash("d"), hash("e")),
    );
    assert_eq!(commit("clone/adapters/cli"), short("e"), "packed");
    write("clone/.git/refs/heads/main", &format!("{}\n", hash("f")));
    assert_eq!(commit("clone/adapters/cli"), short("f"), "newer than the packed one");

    write("tree/core/WIRE.md", "");
    write("tree/adapters/cli/Cargo.toml", "");
    write("tree/.git", "gitdir: ../clone/.git/worktrees/tree\n");
    write("clone/.git/worktrees/tree/HEAD", "ref: refs/heads/side\n");
    write("clone/.git/worktrees/tree/commondir", "../..\n");
    write("clone/.git/refs/heads/side", &hash("1"));
    assert_eq!(commit("tree/adapters/cli"), short("1"));
    fs::remove_dir_all(&root).unwrap();
}
