//! A sequential model of the collective operations: each rank computes what it must get, and compares.

use towline::{Communicator, Commutative, Max, Sum, blocks, blocks_mut};

/// Item `index` of a rank, different in each round.
fn item(round: u64, rank: usize, index: usize) -> u64 {
    let seed = round.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ ((rank as u64) << 40) ^ index as u64;
    (seed ^ (seed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

fn items(round: u64, rank: usize, len: usize) -> Vec<u64> {
    (0..len).map(|index| item(round, rank, index)).collect()
}

/// Composes two maps `x -> a x + b`: associative, and not commutative.
fn compose(first: &[u64; 2], second: &[u64; 2]) -> [u64; 2] {
    [first[0].wrapping_mul(second[0]), first[1].wrapping_mul(second[0]).wrapping_add(second[1])]
}

fn maps(round: u64, rank: usize, len: usize) -> Vec<[u64; 2]> {
    (0..len).map(|index| [item(round, rank, index) | 1, item(round + 1, rank, index)]).collect()
}

/// Combines the items of all ranks in the order of the ranks.
fn combined<T: Copy>(size: usize, of: impl Fn(usize) -> Vec<T>, op: impl Fn(&T, &T) -> T) -> Vec<T> {
    (1..size).fold(of(0), |sum, rank| sum.iter().zip(&of(rank)).map(|(a, b)| op(a, b)).collect())
}

/// Does each collective operation once, with blocks of `len` items, and checks the results.
pub fn check(comm: &Communicator, root: u32, len: usize, round: u64) {
    let what = format!("rank {} of {}, root {root}, {len} items, round {round}", comm.rank(), comm.size());
    reductions(comm, root, len, round, &what);
    to_and_from_root(comm, root, len, round, &what);
    among_all(comm, len, round, &what);
    different_lengths(comm, root, len, round, &what);
}

fn reductions(comm: &Communicator, root: u32, len: usize, round: u64, what: &str) {
    let (rank, size) = (comm.rank() as usize, comm.size() as usize);
    let is_root = comm.rank() == root;
    let sums = combined(size, |rank| items(round, rank, len), |a, b| a.wrapping_add(*b));
    let composed = combined(size, |rank| maps(round, rank, len), compose);

    let mut data = items(round, rank, len);
    comm.allreduce(&mut data, Sum).unwrap();
    assert!(data == sums, "allreduce, {what}");
    let mut data = maps(round, rank, len);
    comm.allreduce(&mut data, compose).unwrap();
    assert!(data == composed, "allreduce in order, {what}");
    let mut into = vec![0; len];
    comm.allreduce_into(&items(round, rank, len), &mut into, Commutative(|a: &u64, b: &u64| a.wrapping_add(*b)))
        .unwrap();
    assert!(into == sums, "allreduce into, {what}");

    let mut data = items(round, rank, len);
    comm.reduce(root, &mut data, Sum).unwrap();
    assert!(data == if is_root { sums.clone() } else { items(round, rank, len) }, "reduce, {what}");
    let mut data = maps(round, rank, len);
    comm.reduce(root, &mut data, compose).unwrap();
    assert!(data == if is_root { composed } else { maps(round, rank, len) }, "reduce in order, {what}");
    let mut into = vec![0; if is_root { len } else { 0 }];
    comm.reduce_into(root, &items(round, rank, len), &mut into, Max).unwrap();
    let largest = combined(size, |rank| items(round, rank, len), |a, b| *a.max(b));
    assert!(!is_root || into == largest, "reduce into, {what}");
}

fn to_and_from_root(comm: &Communicator, root: u32, len: usize, round: u64, what: &str) {
    let (rank, size) = (comm.rank() as usize, comm.size() as usize);
    let is_root = comm.rank() == root;
    let mine = items(round, rank, len);
    let all: Vec<u64> = (0..size).flat_map(|rank| items(round, rank, len)).collect();

    let mut data = if is_root { mine.clone() } else { vec![0; len] };
    comm.broadcast(root, &mut data[..]).unwrap();
    assert!(data == items(round, root as usize, len), "broadcast, {what}");

    let mut into = vec![0; if is_root { size * len } else { 0 }];
    comm.gather(root, &mine, &mut into).unwrap();
    assert!(!is_root || into == all, "gather, {what}");
    let mut data = if is_root { vec![0; size * len] } else { mine.clone() };
    if is_root {
        data[rank * len..][..len].copy_from_slice(&mine);
    }
    comm.gather_in_place(root, &mut data).unwrap();
    assert!(data == if is_root { all.clone() } else { mine.clone() }, "gather in place, {what}");

    let mut into = vec![0; len];
    comm.scatter(root, if is_root { &all } else { &[] }, &mut into).unwrap();
    assert!(into == mine, "scatter, {what}");
    let mut data = if is_root { all.clone() } else { vec![0; len] };
    comm.scatter_in_place(root, &mut data).unwrap();
    assert!(data == if is_root { all } else { mine }, "scatter in place, {what}");
}

fn among_all(comm: &Communicator, len: usize, round: u64, what: &str) {
    let (rank, size) = (comm.rank() as usize, comm.size() as usize);
    let mine = items(round, rank, len);
    let all: Vec<u64> = (0..size).flat_map(|rank| items(round, rank, len)).collect();

    let mut into = vec![0; size * len];
    comm.allgather(&mine, &mut into).unwrap();
    assert!(into == all, "allgather, {what}");
    let mut data = vec![0; size * len];
    data[rank * len..][..len].copy_from_slice(&mine);
    comm.allgather_in_place(&mut data).unwrap();
    assert!(data == all, "allgather in place, {what}");

    let to = |from: usize, to: usize| items(round + 7 * from as u64, to, len);
    let out: Vec<u64> = (0..size).flat_map(|other| to(rank, other)).collect();
    let expected: Vec<u64> = (0..size).flat_map(|other| to(other, rank)).collect();
    let mut into = vec![0; size * len];
    comm.alltoall(&out, &mut into).unwrap();
    assert!(into == expected, "alltoall, {what}");
    let mut data = out;
    comm.alltoall_in_place(&mut data).unwrap();
    assert!(data == expected, "alltoall in place, {what}");
}

fn different_lengths(comm: &Communicator, root: u32, len: usize, round: u64, what: &str) {
    let (rank, size) = (comm.rank() as usize, comm.size() as usize);
    let is_root = comm.rank() == root;
    let count = |rank: usize| if (rank as u64 + round).is_multiple_of(3) { 0 } else { (len + 3 * rank) / 2 };
    let counts: Vec<usize> = (0..size).map(count).collect();
    let mine = items(round, rank, count(rank));
    let all: Vec<u64> = (0..size).flat_map(|rank| items(round, rank, count(rank))).collect();

    let mut into = vec![0; all.len()];
    comm.allgatherv(&mine, &mut blocks_mut(&mut into, &counts).unwrap()).unwrap();
    assert!(into == all, "allgatherv, {what}");
    let mut data = vec![0; all.len()];
    let mut parts = blocks_mut(&mut data, &counts).unwrap();
    parts[rank].copy_from_slice(&mine);
    comm.allgatherv_in_place(&mut parts).unwrap();
    assert!(data == all, "allgatherv in place, {what}");

    let mut into = vec![0; all.len()];
    let mut parts = if is_root { blocks_mut(&mut into, &counts).unwrap() } else { Vec::new() };
    comm.gatherv(root, &mine, &mut parts).unwrap();
    assert!(!is_root || into == all, "gatherv, {what}");
    let (mut into, mut own) = (vec![0; all.len()], mine.clone());
    let mut parts = if is_root { blocks_mut(&mut into, &counts).unwrap() } else { vec![&mut own[..]] };
    if is_root {
        parts[rank].copy_from_slice(&mine);
    }
    comm.gatherv_in_place(root, &mut parts).unwrap();
    assert!(!is_root || into == all, "gatherv in place, {what}");

    let mut into = vec![0; count(rank)];
    comm.scatterv(root, &if is_root { blocks(&all, &counts).unwrap() } else { Vec::new() }, &mut into).unwrap();
    assert!(into == mine, "scatterv, {what}");

    // Between two ranks, the lengths differ in each direction.
    let between = |from: usize, to: usize| if (from + to) % 4 == 3 { 0 } else { len / 2 + 2 * from + to };
    let block = |from: usize, to: usize| items(round + from as u64, to, between(from, to));
    let (out, expected): (Vec<Vec<u64>>, Vec<Vec<u64>>) =
        (0..size).map(|other| (block(rank, other), block(other, rank))).unzip();
    let mut into: Vec<Vec<u64>> = expected.iter().map(|block| vec![0; block.len()]).collect();
    let mut sinks: Vec<&mut [u64]> = into.iter_mut().map(|block| &mut block[..]).collect();
    comm.alltoallv(&out.iter().map(|block| &block[..]).collect::<Vec<_>>(), &mut sinks).unwrap();
    assert!(into == expected, "alltoallv, {what}");

    let between = |one: usize, other: usize| (one + other) * len % 5 + one.max(other);
    let block = |from: usize, to: usize| items(round + 3 * from as u64, to, between(from, to));
    let mut data: Vec<Vec<u64>> = (0..size).map(|other| block(rank, other)).collect();
    let expected: Vec<Vec<u64>> = (0..size).map(|other| block(other, rank)).collect();
    comm.alltoallv_in_place(&mut data.iter_mut().map(|block| &mut block[..]).collect::<Vec<_>>()).unwrap();
    assert!(data == expected, "alltoallv in place, {what}");
}
