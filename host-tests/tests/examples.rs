//! Runs the examples as real processes: several ranks under `towline run`, over sm, tcp and udp.

mod programs;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The transports.
const WAYS: [&str; 3] = ["sm", "tcp", "udp"];

/// The folder of cargo's build output, with the command and the examples.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        programs::build(&[&["-p", "towline-cli", "--bin", "towline"], &["-p", "towline", "--examples"]])
    })
}

/// `towline run` with `ranks` ranks. The program follows. A job that hangs is ended and fails.
fn run(ranks: u32, way: &str) -> Command {
    let mut command = Command::new(built().join("towline"));
    command.args(["run", "--timeout", "300", "--transport", way, "-n", &ranks.to_string(), "--"]);
    command.stdin(Stdio::null());
    command
}

fn example(name: &str) -> PathBuf {
    built().join("examples").join(name)
}

/// Runs a command that must succeed. Returns the lines of its output, sorted.
fn lines(command: &mut Command) -> Vec<String> {
    let output = command.output().unwrap();
    let text = both(&output);
    assert!(output.status.success(), "{command:?}: {}: {text}", output.status);
    let mut lines: Vec<_> = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn both(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

/// A temporary folder, which is removed at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("towline-examples-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path); // of an earlier process with the same number, which was killed
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_token_goes_round_2_4_and_16_ranks() {
    for way in WAYS {
        for ranks in [2u32, 4, 16] {
            let lines = lines(run(ranks, way).arg(example("ring")).args(["--rounds", "50"]));
            let start = format!("[0] {ranks} ranks, {} hops of 8 bytes, ", 50 * ranks);
            assert!(lines.len() == 1 && lines[0].starts_with(&start), "{way}: {lines:?}");
        }
    }
}

/// Each example runs on any number of ranks, with the launcher or without it.
#[test]
fn each_example_works_for_any_number_of_ranks_and_without_the_launcher() {
    let folder = Folder::new("any");
    let image = folder.0.join("in.png");
    let mut encoder = png::Encoder::new(fs::File::create(&image).unwrap(), 7, 5);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.write_header().unwrap().write_image_data(&[9; 35]).unwrap();
    let examples: [(&str, &[&str]); 7] = [
        ("ring", &["--rounds", "3"]),
        ("ring", &["--rounds", "3", "--bytes", "3000000"]),
        ("contexts", &["--rounds", "3"]),
        ("mailbox", &["--letters", "3"]),
        ("filecast", &["in.png", "copies"]),
        ("heat2d", &["in.png", "3", "out.png"]),
        ("histogram", &["in.txt"]),
    ];
    fs::write(folder.0.join("in.txt"), "one two two").unwrap();
    for (name, arguments) in examples {
        lines(Command::new(example(name)).args(arguments).current_dir(&folder.0).stdin(Stdio::null()));
        for ranks in [1, 2, 3, 5] {
            lines(run(ranks, "sm").arg(example(name)).args(arguments).current_dir(&folder.0));
        }
    }
}

#[test]
fn members_of_records_go_round_by_a_nested_layout() {
    for way in WAYS {
        for ranks in [1u32, 2, 5] {
            let lines = lines(run(ranks, way).arg(example("records")));
            assert_eq!(lines.len(), ranks as usize, "{way}: {lines:?}");
            let start = format!("[0] rank 0 of {ranks}: 432 bytes of 12 particles came from rank {}", ranks - 1);
            assert_eq!(lines[0], start, "{way}: {lines:?}");
        }
    }
}

/// A program whose only dependency is `towline` derives the traits for its own structures.
#[test]
fn a_crate_that_depends_on_towline_alone_sends_its_own_structures() {
    let folder = Folder::new("own-structures");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    fs::create_dir(folder.0.join("src")).unwrap();
    fs::copy(root.join("adapters/host/examples/records.rs"), folder.0.join("src/main.rs")).unwrap();
    fs::copy(root.join("Cargo.lock"), folder.0.join("Cargo.lock")).unwrap(); // the versions that are there
    // The same profile, so that most crates are built already.
    let manifest = format!(
        "[package]\nname = \"own-structures\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\
         [dependencies]\ntowline = {{ path = {:?} }}\n[workspace]\n\
         [profile.dev.package.towline-core]\nopt-level = 1\n",
        root.join("adapters/host")
    );
    fs::write(folder.0.join("Cargo.toml"), manifest).unwrap();
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--offline", "--target-dir"])
        .arg(built().parent().unwrap())
        .current_dir(&folder.0)
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", both(&built));
    let program = self::built().parent().unwrap().join("debug/own-structures");
    assert_eq!(lines(run(2, "sm").arg(program)).len(), 2);
}

#[test]
fn long_tokens_go_round_too() {
    for way in WAYS {
        let lines = lines(run(3, way).arg(example("ring")).args(["--rounds", "3", "--bytes", "3000000"]));
        assert!(lines[0].starts_with("[0] 3 ranks, 9 hops of 3000000 bytes, "), "{way}: {lines:?}");
    }
}

#[test]
fn threads_of_all_ranks_send_to_each_other() {
    for way in WAYS {
        for (ranks, contexts, bytes) in [(2u32, 3u32, 64), (4, 3, 64), (2, 3, 100_000)] {
            let mut command = run(ranks, way);
            command.arg(example("contexts")).args(["--rounds", "20", "--contexts", &contexts.to_string()]);
            let lines = lines(command.args(["--bytes", &bytes.to_string()]));
            let messages = 20 * (ranks * contexts) * (ranks * contexts);
            let start = format!("[0] {ranks} ranks, {contexts} contexts each, {messages} messages of {bytes} bytes, ");
            assert!(lines.len() == 1 && lines[0].starts_with(&start), "{way}: {lines:?}");
        }
    }
}

#[test]
fn letters_are_answered_over_every_transport() {
    for way in WAYS {
        let lines = lines(run(3, way).arg(example("mailbox")).args(["--letters", "20"]));
        assert_eq!(lines, ["[0] 20 letters to each of 2 ranks, 0 of which made no call"], "{way}");
    }
}

#[test]
fn a_rank_with_another_number_of_contexts_is_named_and_ends_the_job() {
    for way in WAYS {
        // Rank 2 has one context more than the other ranks.
        let script = r#"exec "$0" --contexts $((2 + TOWLINE_RANK / 2))"#;
        let output = run(3, way).args(["sh", "-c", script]).arg(example("contexts")).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{way}: {}", both(&output));
        let named = "towline: rank 2 has 3 contexts, but rank 0 has 2: build all ranks with the same number";
        assert!(both(&output).contains(named), "{way}: {}", both(&output));
    }
}

#[test]
fn all_to_all_brings_each_block_to_its_rank() {
    for way in WAYS {
        for (ranks, bytes) in [(1, 8), (3, 1024), (4, 100_000)] {
            let mut command = run(ranks, way);
            let lines =
                lines(command.arg(example("all_to_all")).args(["--rounds", "20", "--bytes", &bytes.to_string()]));
            let start = format!("[0] {ranks} ranks, blocks of {bytes} bytes, ");
            assert!(lines.len() == 1 && lines[0].starts_with(&start), "{way}: {lines:?}");
        }
    }
}

#[test]
fn a_file_is_distributed_to_ranks_that_do_not_have_it() {
    // Sizes around a chunk, an empty file, and a chunk that is longer than the file.
    for (way, ranks, len, chunk) in [
        ("sm", 4, (1 << 20) * 3 + 17, 1 << 20),
        ("tcp", 4, (1 << 20) * 3 + 17, 1 << 20),
        ("udp", 4, (1 << 20) * 3 + 17, 1 << 20),
        ("sm", 7, 200_000, 50_000),
        ("tcp", 3, 200_000, 200_001),
        ("sm", 2, 0, 1 << 20),
        ("tcp", 1, 5000, 1 << 20),
    ] {
        let folder = Folder::new(&format!("cast-{way}-{ranks}-{len}"));
        let bytes: Vec<u8> = (0..len as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        fs::write(folder.0.join("input"), &bytes).unwrap();
        fs::create_dir(folder.0.join("elsewhere")).unwrap();
        // Only rank 0 can access the input.
        let script = r#"[ "$TOWLINE_RANK" = 0 ] || cd elsewhere; exec "$0" input "$1" --chunk "$2""#;
        let mut command = run(ranks, way);
        command.args(["sh", "-c", script]).arg(example("filecast")).arg(folder.0.join("copies")).arg(chunk.to_string());
        let lines = lines(command.current_dir(&folder.0));
        assert_eq!(lines.len(), ranks as usize, "{lines:?}");
        let digest = lines[0].rsplit(' ').next().unwrap();
        assert_eq!(digest.len(), 64);
        for (rank, line) in lines.iter().enumerate() {
            assert_eq!(*line, format!("[{rank}] rank {rank} sha256 {digest}"), "{way}");
        }
        for rank in 1..ranks {
            let copy = fs::read(folder.0.join("copies").join(rank.to_string())).unwrap();
            assert!(copy == bytes, "{way}: rank {rank} of {ranks} wrote {} bytes", copy.len());
        }
        assert!(!folder.0.join("copies/0").exists());
    }
}

#[test]
fn a_missing_file_ends_the_job_and_is_named() {
    for way in WAYS {
        let folder = Folder::new(&format!("missing-{way}"));
        let mut command = run(3, way);
        let output = command.arg(example("filecast")).args(["not-there", "copies"]).current_dir(&folder.0).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(1), "{way}: {}", both(&output));
        assert!(both(&output).contains("not-there: "), "{way}: {}", both(&output));
    }
}

/// The counts of all words of a file, on any number of ranks over any transport.
#[test]
fn word_counts_do_not_depend_on_the_number_of_ranks() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../LICENSE-APACHE");
    let text = fs::read_to_string(&file).unwrap();
    let mut counts = std::collections::HashMap::new();
    for word in text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty()) {
        *counts.entry(word).or_insert(0u64) += 1;
    }
    let mut expected: Vec<_> = counts.iter().map(|(word, count)| format!("[0] {count:8} {word}")).collect();
    expected.sort();
    assert!(expected.len() > 300);
    for (way, ranks) in [("sm", 1), ("sm", 3), ("tcp", 3), ("udp", 2)] {
        assert_eq!(lines(run(ranks, way).arg(example("histogram")).arg(&file)), expected, "{way}, {ranks} ranks");
    }
    let output = run(2, "sm").arg(example("histogram")).arg(&file).args(["--places", "9"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(both(&output).contains("all entries of rank"), "{}", both(&output));
}

/// The same diffusion as in the example, computed by one process.
fn diffused(width: usize, height: usize, channels: usize, bytes: &[u8], steps: u32) -> Vec<u8> {
    let mut cells: Vec<f64> = bytes.iter().map(|byte| f64::from(*byte)).collect();
    for _ in 0..steps {
        let at = |row: usize, column: usize, channel: usize| cells[(row * width + column) * channels + channel];
        let mut next = Vec::with_capacity(cells.len());
        for row in 0..height {
            for column in 0..width {
                for channel in 0..channels {
                    let own = at(row, column, channel);
                    let left = at(row, column.saturating_sub(1), channel);
                    let right = at(row, (column + 1).min(width - 1), channel);
                    let above = at(row.saturating_sub(1), column, channel);
                    let below = at((row + 1).min(height - 1), column, channel);
                    next.push(own + 0.2 * ((left + right) + (above + below) - 4.0 * own));
                }
            }
        }
        cells = next;
    }
    cells.into_iter().map(|cell| cell.round() as u8).collect()
}

#[test]
fn diffusion_does_not_depend_on_the_number_of_ranks() {
    let folder = Folder::new("heat");
    for (name, width, height, color, channels) in [
        ("wide", 61usize, 23usize, png::ColorType::Rgb, 3usize),
        ("high", 3, 50, png::ColorType::Grayscale, 1),
        ("dot", 1, 1, png::ColorType::Rgba, 4),
    ] {
        let bytes: Vec<u8> =
            (0..width * height * channels).map(|at| ((at * at + 7 * at) % 251 + (at % 2) * 4) as u8).collect();
        let input = folder.0.join(format!("{name}.png"));
        let mut encoder = png::Encoder::new(fs::File::create(&input).unwrap(), width as u32, height as u32);
        encoder.set_color(color);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header().unwrap();
        writer.write_image_data(&bytes).unwrap();
        writer.finish().unwrap();
        let expected = diffused(width, height, channels, &bytes, 20);

        let mut first: Option<Vec<u8>> = None;
        for (way, ranks) in [("sm", 1), ("sm", 2), ("tcp", 2), ("sm", 4), ("tcp", 4), ("sm", 6)] {
            let output = folder.0.join(format!("{name}-{way}-{ranks}.png"));
            lines(run(ranks, way).arg(example("heat2d")).arg(&input).arg("20").arg(&output));
            let picture = fs::read(&output).unwrap();
            let mut reader = png::Decoder::new(std::io::Cursor::new(&picture)).read_info().unwrap();
            let mut cells = vec![0; reader.output_buffer_size().unwrap()];
            reader.next_frame(&mut cells).unwrap();
            assert!(
                cells == expected,
                "{name} on {ranks} ranks over {way}: the cells differ from those of one process"
            );
            assert!(first.get_or_insert_with(|| picture.clone()) == &picture, "{name} on {ranks} ranks over {way}");
        }
    }
}

/// Waits for something that comes unless the test fails.
fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(300);
    loop {
        match look() {
            Some(found) => return found,
            None => assert!(Instant::now() < until, "{what}: this did not come"),
        }
        std::thread::yield_now();
    }
}

/// Waits until a rank runs the program. Finds its process by the environment.
fn process_of(rank: u32, mark: &str) -> i32 {
    let wanted = [format!("TOWLINE_RANK={rank}"), format!("TOWLINE_EXAMPLES_MARK={mark}")];
    wait_for("the process of a rank", || {
        fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok())?;
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            let variables: Vec<_> = environment.split(|byte| *byte == 0).collect();
            let program = fs::read_link(entry.path().join("exe")).unwrap_or_default();
            let is_it = program.ends_with("ring") && wanted.iter().all(|wanted| variables.contains(&wanted.as_bytes()));
            is_it.then_some(pid)
        })
    })
}

/// A job that is ended when its test fails.
struct Job(Child);

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_rank_that_is_killed_ends_the_job_with_a_message() {
    for way in WAYS {
        let mark = format!("{}-{way}", std::process::id());
        let mut command = run(4, way);
        command.arg(example("ring")).args(["--rounds", "4000000000"]).env("TOWLINE_EXAMPLES_MARK", &mark);
        let mut job = Job(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
        let victim = process_of(2, &mark);
        // SAFETY: this sends a signal to a process that the test has started.
        assert_eq!(unsafe { libc::kill(victim, libc::SIGKILL) }, 0);
        let mut errors = String::new();
        std::io::Read::read_to_string(job.0.stderr.as_mut().unwrap(), &mut errors).unwrap();
        let status = job.0.wait().unwrap();
        assert_eq!(status.code(), Some(128 + libc::SIGKILL), "{way}: {errors}");
        assert!(errors.contains("rank 2"), "{way}: {errors}");
    }
}

/// Ranks that lose a killed rank end too, perhaps before the launcher notices the killed one. The launcher reports the killed
/// rank in any case.
#[test]
fn a_killed_rank_is_named_before_ranks_that_end_because_of_it() {
    let folder = Folder::new("named");
    let script = "echo $$ > pid.$TOWLINE_RANK; until [ -e go ]; do sleep 0.02; done
        if [ $TOWLINE_RANK = 1 ]; then kill -9 $$; fi; exit 3";
    let mut command = run(2, "sm");
    command.args(["sh", "-c", script]).current_dir(&folder.0);
    let mut job = Job(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
    let ranks = [0, 1].map(|rank| {
        let file = folder.0.join(format!("pid.{rank}"));
        wait_for("a rank's number", || Some(fs::read_to_string(&file).ok()?.strip_suffix('\n')?.to_owned()))
    });
    let signal = |signal| {
        // SAFETY: this sends a signal to a process that the test has started.
        assert_eq!(unsafe { libc::kill(job.0.id() as i32, signal) }, 0);
    };
    // `None`: the process or thread is gone.
    let is_in_state = |stat: &Path, state: char| {
        let text = fs::read_to_string(stat).ok()?;
        Some(text.rsplit(')').next()?.trim_start().starts_with(state))
    };
    signal(libc::SIGSTOP);
    // Each thread of the launcher stops when it has its turn, or ends.
    let threads = PathBuf::from(format!("/proc/{}/task", job.0.id()));
    wait_for("the stop of the launcher", || {
        let mut threads = fs::read_dir(&threads).unwrap().flatten();
        threads.all(|thread| is_in_state(&thread.path().join("stat"), 'T') != Some(false)).then_some(())
    });
    fs::write(folder.0.join("go"), "").unwrap();
    let has_ended = |pid: &String| is_in_state(Path::new(&format!("/proc/{pid}/stat")), 'Z') == Some(true);
    wait_for("the end of the ranks", || ranks.iter().all(has_ended).then_some(()));
    signal(libc::SIGCONT);
    let mut errors = String::new();
    std::io::Read::read_to_string(job.0.stderr.as_mut().unwrap(), &mut errors).unwrap();
    assert_eq!(job.0.wait().unwrap().code(), Some(128 + libc::SIGKILL), "{errors}");
    assert!(errors.contains("rank 1"), "{errors}");
}
