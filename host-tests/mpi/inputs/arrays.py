"""Ranks exchange NumPy arrays through mpi4py in many ways. Each rank prints a checksum of all that it received."""

import hashlib

import numpy
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
received = hashlib.sha256()


def take(array):
    received.update(numpy.ascontiguousarray(array).tobytes())


for kind in (numpy.int8, numpy.int32, numpy.float64, numpy.complex128):
    for length in (1, 7, 1000, 70_000, 1_000_000):
        mine = (numpy.arange(length) * (rank + 3) % 101).astype(kind)
        # Around a ring.
        other = numpy.empty_like(mine)
        world.Sendrecv(mine, (rank + 1) % size, 5, other, (rank - 1) % size, 5)
        take(other)
        # Every second element, from a matrix column by column.
        matrix = numpy.empty((length, 2), kind)
        column = MPI.Datatype.Create_vector(MPI._typedict[mine.dtype.char], length, 1, 2).Commit()
        requests = [world.Irecv([matrix, 1, column], MPI.ANY_SOURCE, 6), world.Isend(mine, (rank + 1) % size, 6)]
        matrix[:, 1] = 1
        MPI.Request.Waitall(requests)
        take(matrix)
        column.Free()
        # All with all.
        total = numpy.empty_like(mine)
        world.Allreduce(mine, total, MPI.SUM)
        take(total)
        everyone = numpy.empty((size, length), kind)
        world.Allgather(mine, everyone)
        take(everyone)
        parts = numpy.empty_like(everyone)
        world.Alltoall(everyone, parts)
        take(parts)
        # Synchronous, with a probe that says how long the message is.
        request = world.Issend(mine, (rank - 1) % size, 7)
        status = MPI.Status()
        message = world.Mprobe((rank + 1) % size, MPI.ANY_TAG, status)
        probed = numpy.empty(status.Get_count(MPI._typedict[mine.dtype.char]), kind)
        message.Recv(probed)
        request.Wait()
        take(probed)

# Objects, and arrays in them.
for root in range(size):
    take(world.bcast({"array": numpy.arange(1000) * root}, root)["array"])
    gathered = world.gather(numpy.full(100, rank), root)
    if rank == root:
        take(numpy.array(gathered))

for line in world.gather(f"rank {rank}: {received.hexdigest()}") or []:
    print(line)
