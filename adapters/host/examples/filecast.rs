//! Rank 0 streams a file to all other ranks through a tree. Each writes it to OUTDIR/<rank> and verifies its SHA-256.
//!
//! Each rank sends a chunk to its children while it receives the next one. So a file of any length needs memory for two
//! chunks only. Only rank 0 opens FILE.
//!
//! Any number of ranks will do. Without the launcher the program is a job of one rank.
//!
//! ```sh
//! towline run -n 4 -- target/release/examples/filecast big.iso /tmp/copies
//! ```

use std::error::Error;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use sha2::{Digest, Sha256};
use towline::{Scope, World};

/// Streams FILE from rank 0 to OUTDIR/<rank> on all other ranks
#[derive(Parser)]
struct Arguments {
    /// The file to send; only rank 0 needs it
    file: PathBuf,
    /// The directory that the other ranks write to
    outdir: PathBuf,
    /// Number of children of each rank in the tree
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    fanout: u32,
    /// Bytes of a chunk
    #[arg(long, default_value_t = 1 << 20, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    chunk: u64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    towline::run(|world| verify(world, cast(world, &arguments)?))
}

/// Takes part in the stream. Returns the digest of the bytes that this rank read or wrote.
fn cast(world: &World, arguments: &Arguments) -> Result<[u8; 32], Box<dyn Error>> {
    let chunk = arguments.chunk as usize;
    let tree = Tree { rank: world.rank(), size: world.size(), fanout: arguments.fanout };
    let (mut current, mut next_chunk) = (vec![0u8; chunk], vec![0u8; chunk]);
    let mut end = match tree.parent() {
        None => End::Source(open(&arguments.file)?),
        Some(parent) => End::Sink(parent, create(&arguments.outdir, world.rank())?),
    };
    let mut hasher = Sha256::new();
    let mut len = end.first(world, &mut current)?;
    loop {
        // A chunk that is not full is the last one. It may be empty.
        let last = len < chunk;
        let next = world.scope(|s| {
            let chunk = &current[..len];
            for child in tree.children() {
                s.isend(child, 0, chunk)?;
            }
            end.handle(s, &mut hasher, chunk, (!last).then_some(&mut next_chunk))
        })?;
        if last {
            break;
        }
        std::mem::swap(&mut current, &mut next_chunk);
        len = next;
    }
    end.close()?;
    Ok(hasher.finalize().into())
}

/// Compares the digest with that of rank 0.
fn verify(world: &World, digest: [u8; 32]) -> Result<(), Box<dyn Error>> {
    let mut expected = digest;
    world.broadcast(0, &mut expected)?;
    println!("rank {} sha256 {}", world.rank(), hex(&digest));
    if digest == expected { Ok(()) } else { Err(format!("the file has SHA-256 {} on rank 0", hex(&expected)).into()) }
}

/// The tree through which the file is sent.
struct Tree {
    rank: u32,
    size: u32,
    fanout: u32,
}

impl Tree {
    fn parent(&self) -> Option<u32> {
        Some(self.rank.checked_sub(1)? / self.fanout)
    }

    fn children(&self) -> std::ops::Range<u32> {
        let first = self.rank.saturating_mul(self.fanout).saturating_add(1);
        first.min(self.size)..first.saturating_add(self.fanout).min(self.size)
    }
}

/// A rank's end of the stream: the file that rank 0 reads, or the parent rank and the file to write.
enum End {
    Source(File),
    Sink(u32, File),
}

impl End {
    fn first(&mut self, world: &World, into: &mut [u8]) -> Result<usize, Box<dyn Error>> {
        match self {
            Self::Source(file) => fill(file, into),
            Self::Sink(parent, _) => Ok(world.recv(*parent, 0, into)?.count::<u8>()),
        }
    }

    /// Adds a chunk to the digest, writes it on ranks other than 0, and reads or receives the next chunk. Returns the length of
    /// the next chunk.
    fn handle<'scope>(
        &mut self,
        s: &'scope Scope<'scope, '_>,
        hasher: &mut Sha256,
        chunk: &[u8],
        next: Option<&'scope mut Vec<u8>>,
    ) -> Result<usize, Box<dyn Error>> {
        match self {
            Self::Source(file) => {
                hasher.update(chunk);
                next.map_or(Ok(0), |next| fill(file, next))
            }
            Self::Sink(parent, file) => {
                let receive = next.map(|next| s.irecv(*parent, 0, &mut next[..])).transpose()?;
                hasher.update(chunk);
                file.write_all(chunk)?;
                Ok(match receive {
                    Some(receive) => receive.wait()?.0.count::<u8>(),
                    None => 0,
                })
            }
        }
    }

    /// Closes the file, and reports errors that the file system has delayed.
    fn close(self) -> Result<(), Box<dyn Error>> {
        match self {
            Self::Source(_) => Ok(()),
            Self::Sink(_, mut file) => Ok(file.flush()?),
        }
    }
}

/// Reads until `into` is full or the file ends.
fn fill(file: &mut File, into: &mut [u8]) -> Result<usize, Box<dyn Error>> {
    let mut len = 0;
    while len < into.len() {
        match file.read(&mut into[len..]) {
            Ok(0) => break,
            Ok(bytes) => len += bytes,
            Err(why) if why.kind() == std::io::ErrorKind::Interrupted => {}
            Err(why) => return Err(why.into()),
        }
    }
    Ok(len)
}

fn open(path: &Path) -> Result<File, Box<dyn Error>> {
    File::open(path).map_err(|why| format!("{}: {why}", path.display()).into())
}

fn create(outdir: &Path, rank: u32) -> Result<File, Box<dyn Error>> {
    fs::create_dir_all(outdir).map_err(|why| format!("{}: {why}", outdir.display()))?;
    let path = outdir.join(rank.to_string());
    File::create(&path).map_err(|why| format!("{}: {why}", path.display()).into())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
