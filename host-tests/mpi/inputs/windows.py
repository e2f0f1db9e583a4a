"""Ranks add to NumPy arrays of each other through mpi4py's windows, and read them. Each rank prints a checksum of what it
read."""

import hashlib

import numpy
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
memory = numpy.zeros(100_000, numpy.int64)
window = MPI.Win.Create(memory, memory.itemsize, comm=world)
received = hashlib.sha256()
for turn in range(5):
    window.Fence()
    for target in range(size):
        window.Accumulate(numpy.arange(memory.size) * (rank + turn), target)
    window.Fence()
    copy = numpy.empty_like(memory)
    window.Get(copy, (rank + 1) % size)
    window.Fence()
    received.update(copy.tobytes())
    # A counter that all share.
    before = numpy.zeros(1, numpy.int64)
    window.Lock(0)
    window.Fetch_and_op(numpy.ones(1, numpy.int64), before, 0, 7)
    window.Unlock(0)
    world.Barrier()
    if rank == 0:
        received.update(memory[7:8].tobytes())
window.Free()
for line in world.gather(f"rank {rank}: {received.hexdigest()}") or []:
    print(line)
