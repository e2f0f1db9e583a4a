//! The boards that a DPU may be, their programs, and how these are started.

use std::path::{Path, PathBuf};
use std::process::Command;

use towline_settings::unknown;

use super::relay::Protocol;

/// A board of the firmware.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Board {
    /// A process of this host.
    Linux,
    /// A machine in QEMU with a 64-bit Arm core.
    VirtAarch64,
    /// A machine in QEMU with a 64-bit RISC-V core.
    VirtRiscv64,
}

/// Where a board has its window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// Bytes of the file: the window, or all memory of a machine.
    pub bytes: u64,
    /// Where the window begins in it.
    pub offset: u64,
}

/// The settings of the firmware.
const SETTINGS: [&str; 2] = ["TOWLINE_FIRMWARE_AWAKE_US", "TOWLINE_FIRMWARE_SLEEP_MS"];

/// Memory of a machine in QEMU.
const MACHINE: &str = "64M";

impl Board {
    /// The names.
    pub const NAMES: [&str; 3] = ["linux", "virt-aarch64", "virt-riscv64"];

    /// The board of a name.
    ///
    /// # Errors
    /// What is possible.
    pub fn parse(name: &str) -> Result<Self, String> {
        match name {
            "linux" => Ok(Self::Linux),
            "virt-aarch64" => Ok(Self::VirtAarch64),
            "virt-riscv64" => Ok(Self::VirtRiscv64),
            _ => Err(format!("it {}; possible: {}", unknown("board", name, &Self::NAMES), Self::NAMES.join(", "))),
        }
    }

    /// The name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Linux => "linux",
            Self::VirtAarch64 => "virt-aarch64",
            Self::VirtRiscv64 => "virt-riscv64",
        }
    }

    /// The most DPUs of a system in which this board is one: the peers that its firmware has room for, itself included.
    pub const fn peers(self) -> u32 {
        match self {
            Self::Linux => 256,
            Self::VirtAarch64 | Self::VirtRiscv64 => 16,
        }
    }

    /// Whether it is a machine in QEMU.
    pub const fn is_emulated(self) -> bool {
        !matches!(self, Self::Linux)
    }

    /// The target that its programs are built for, and the name of the program of a DPU.
    fn build(self) -> (String, &'static str) {
        match self {
            Self::Linux => (format!("{}-unknown-linux-gnu", std::env::consts::ARCH), "dpu"),
            Self::VirtAarch64 => ("aarch64-unknown-none".into(), "dpu-with-network"),
            Self::VirtRiscv64 => ("riscv64gc-unknown-none-elf".into(), "dpu-with-network"),
        }
    }

    /// Its program in a folder that has the programs of all boards.
    fn program_in(self, folder: &Path) -> PathBuf {
        let (target, name) = self.build();
        folder.join(self.name()).join(target).join("release").join(name)
    }

    /// Where its window is.
    pub const fn window(self) -> Window {
        match self {
            Self::Linux => Window { bytes: 32 << 20, offset: 0 },
            Self::VirtAarch64 | Self::VirtRiscv64 => Window { bytes: 64 << 20, offset: 32 << 20 },
        }
    }

    /// QEMU with the options that only this board has, and the package that contains it.
    fn emulator(self) -> (&'static str, &'static [&'static str], &'static str) {
        match self {
            Self::VirtRiscv64 => {
                ("qemu-system-riscv64", &["-M", "virt,memory-backend=ram", "-bios", "none"], "qemu-system-misc")
            }
            _ => ("qemu-system-aarch64", &["-M", "virt,memory-backend=ram", "-cpu", "cortex-a72"], "qemu-system-arm"),
        }
    }

    /// The command that starts the board as a machine, with its memory in a file, and the text of what to install if QEMU is missing.
    pub fn machine(self, program: &Path, memory: &Path) -> (Command, String) {
        let (emulator, options, package) = self.emulator();
        let mut command = Command::new(emulator);
        command.args(options);
        command.arg("-kernel").arg(program);
        command.args(["-m", MACHINE, "-nodefaults", "-nographic", "-monitor", "none", "-serial", "stdio"]);
        command.arg("-semihosting-config").arg(format!("enable=on,target=native,arg=dpu{}", settings()));
        command.arg("-object");
        command.arg(format!("memory-backend-file,id=ram,size={MACHINE},share=on,mem-path={}", memory.display()));
        command.args(["-global", "virtio-mmio.force-legacy=false"]);
        (command, format!("board {} needs {emulator}: install QEMU (in Debian the package {package})", self.name()))
    }
}

/// The settings of the firmware that this process has in its environment, for the command line of a machine. A process finds them in its
/// environment itself.
fn settings() -> String {
    let set = |name: &&str| std::env::var(name).ok().map(|value| format!(",arg={name}={}", value.replace(',', ",,")));
    SETTINGS.iter().filter_map(set).collect()
}

/// The boards of `count` DPUs that speak a protocol: those that the user names, or the same for all.
///
/// # Errors
/// A text that says which boards are possible.
pub fn assign(named: &[Board], count: u32, protocol: Protocol) -> Result<Vec<Board>, String> {
    let boards = match named {
        [one] => vec![*one; count as usize],
        many if many.len() == count as usize => many.to_vec(),
        many => {
            return Err(format!(
                "--board has {} boards for {count} DPUs: name one for all, or one for each",
                many.len()
            ));
        }
    };
    if let Some(board) = boards.iter().find(|board| board.peers() < count) {
        return Err(format!(
            "{count} DPUs are too many for board {}, whose firmware has room for {} in all: start fewer ranks, or name another board",
            board.name(),
            board.peers()
        ));
    }
    if protocol == Protocol::Ethernet && boards.contains(&Board::Linux) {
        return Err("--protocol ethernet is not for board linux, which speaks udp".into());
    }
    Ok(boards)
}

/// The programs of the boards. `given` is the program or folder that the user names.
///
/// # Errors
/// A text that says what is missing, and how to build it.
pub fn programs(boards: &[Board], given: Option<&Path>) -> Result<Vec<PathBuf>, String> {
    // The processes of the DPUs have another current folder.
    let absolute = |path: &Path| std::path::absolute(path).map_err(|why| format!("--firmware: {why}"));
    let given = given.map(absolute).transpose()?;
    let given = given.as_deref();
    if let Some(file) = given.filter(|path| !path.is_dir()) {
        if !file.exists() {
            return Err(format!("--firmware {}: there is no such file or folder", file.display()));
        }
        if boards.iter().any(|board| Some(board) != boards.first()) {
            return Err(format!(
                "--firmware {}: one program cannot run on several kinds of boards: name the folder with the programs of all boards",
                file.display()
            ));
        }
        return Ok(vec![file.into(); boards.len()]);
    }
    let folder = match given {
        Some(folder) => folder.into(),
        None => default_folder()?,
    };
    let found = |board: &Board| {
        let program = board.program_in(&folder);
        let missing = || {
            format!(
                "the firmware of board {} is missing: there is no {}; build it by `host-tests/scripts/firmware {0}` in the \
                 repository of Towline, or name another place by --firmware",
                board.name(),
                program.display()
            )
        };
        program.is_file().then(|| program.clone()).ok_or_else(missing)
    };
    boards.iter().map(found).collect()
}

/// The folder `firmware` beside that of this program, where the repository's script builds it.
fn default_folder() -> Result<PathBuf, String> {
    let me = std::env::current_exe().map_err(|why| format!("cannot find this program: {why}"))?;
    let folder = me.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
    Ok(folder.join("firmware"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boards_of_one_protocol_are_mixed_and_others_refused() {
        use Board::{Linux, VirtAarch64, VirtRiscv64};
        use Protocol::{Ethernet, Udp};
        assert_eq!(assign(&[Linux], 3, Udp), Ok(vec![Linux; 3]));
        assert_eq!(assign(&[VirtAarch64, VirtRiscv64], 2, Ethernet), Ok(vec![VirtAarch64, VirtRiscv64]));
        assert!(assign(&[VirtAarch64, VirtRiscv64], 3, Udp).unwrap_err().contains("2 boards for 3 DPUs"));
        assert_eq!(assign(&[Linux, VirtRiscv64], 2, Udp), Ok(vec![Linux, VirtRiscv64]));
        assert!(assign(&[Linux, VirtRiscv64], 2, Ethernet).unwrap_err().contains("--protocol ethernet"));
        assert_eq!(assign(&[Linux], 256, Udp).map(|boards| boards.len()), Ok(256));
        assert!(assign(&[VirtAarch64], 17, Udp).unwrap_err().contains("room for 16"));
        for name in Board::NAMES {
            assert_eq!(Board::parse(name).map(Board::name), Ok(name));
        }
        assert!(Board::parse("virt-aarch46").unwrap_err().contains("virt-aarch64"));
    }

    #[test]
    fn programs_are_found_in_a_folder_or_named() {
        let folder = tempfile::tempdir().unwrap();
        let missing = programs(&[Board::VirtAarch64], Some(folder.path())).unwrap_err();
        assert!(missing.contains("host-tests/scripts/firmware virt-aarch64"), "{missing}");
        let program = Board::VirtAarch64.program_in(folder.path());
        std::fs::create_dir_all(program.parent().unwrap()).unwrap();
        std::fs::write(&program, "").unwrap();
        assert_eq!(programs(&[Board::VirtAarch64; 2], Some(folder.path())), Ok(vec![program.clone(); 2]));
        assert_eq!(programs(&[Board::Linux], Some(&program)), Ok(vec![program.clone()]));
        let mixed = programs(&[Board::VirtAarch64, Board::VirtRiscv64], Some(&program)).unwrap_err();
        assert!(mixed.contains("several kinds"), "{mixed}");
        let nothing = programs(&[Board::Linux], Some(&folder.path().join("nothing"))).unwrap_err();
        assert!(nothing.contains("no such file"), "{nothing}");
    }
}
