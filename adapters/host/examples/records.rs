//! Sends two members of each record in a block of a table, with a nested layout. No record is copied to be sent.
//!
//! Each rank has a table of records, and sends the positions and speeds of a block of it to the next rank, round the ring. The
//! receiver puts them into the same block of its own table; the other members of its records stay as they are. It works with any
//! number of ranks, one included.
//!
//! ```sh
//! towline run -n 4 -- target/release/examples/records
//! ```

use std::error::Error;

use towline::zerocopy::{FromBytes, Immutable, IntoBytes};
use towline::{Layout, Piece, View, ViewMut};

/// A particle, as a simulation may store it. The derives come through the crate `towline`.
#[derive(Clone, Copy, PartialEq, Debug, FromBytes, IntoBytes, Immutable)]
#[zerocopy(crate = "towline::zerocopy")]
#[repr(C)]
struct Particle {
    position: [f64; 3],
    /// Which rank made it.
    owner: u32,
    kind: u32,
    speed: [f32; 3],
    mass: f32,
}

const ROWS: usize = 6;
const COLUMNS: usize = 8;

fn main() -> Result<(), Box<dyn Error>> {
    let world = towline::init()?;
    let (rank, size) = (world.rank(), world.size());
    let (previous, next) = ((rank + size - 1) % size, (rank + 1) % size);

    // Level 1: two members of one particle.
    let mut members =
        [Piece::bytes(0, size_of::<[f64; 3]>() as u64), Piece::bytes(std::mem::offset_of!(Particle, speed) as i64, 12)];
    let members = Layout::pieces(&mut members)?;
    // Level 2: those members of three particles that are neighbours in a row. Level 3: of four rows.
    let particle = size_of::<Particle>();
    let row = Layout::strided(3, particle as i64, &members)?;
    let block = Layout::strided(4, (COLUMNS * particle) as i64, &row)?;
    // The block begins in row 1, column 2.
    let origin = COLUMNS + 2;

    let table = table(rank);
    let mut received = table.clone();
    // The receive is posted first, so that no rank waits for another in a circle.
    world.scope(|s| {
        s.irecv_view(previous, 0, ViewMut::new(&mut received, origin, &block)?)?;
        s.isend_view(next, 0, View::new(&table, origin, &block)?)?;
        Ok::<(), towline::Error>(())
    })?;

    let theirs = self::table(previous);
    for (at, particle) in received.iter().enumerate() {
        let (row, column) = (at / COLUMNS, at % COLUMNS);
        let moved = (1..5).contains(&row) && (2..5).contains(&column);
        let source = if moved { &theirs } else { &table };
        let expected = Particle { position: source[at].position, speed: source[at].speed, ..table[at] };
        assert_eq!(*particle, expected, "row {row}, column {column}");
    }
    println!("rank {rank} of {size}: {} bytes of 12 particles came from rank {previous}", block.size());
    world.finish()?;
    Ok(())
}

/// The table of a rank.
fn table(rank: u32) -> Vec<Particle> {
    let particle = |at: usize| Particle {
        position: [f64::from(rank), at as f64, 0.5],
        owner: rank,
        kind: at as u32 % 3,
        speed: [at as f32, -1.0, rank as f32],
        mass: 1.0 + rank as f32,
    };
    (0..ROWS * COLUMNS).map(particle).collect()
}
