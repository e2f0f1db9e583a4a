"""Runs MPI jobs with a time limit, each with its own processes and shared memory."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass, field
from typing import List

here = pathlib.Path(__file__).resolve().parent
root = here.parent.parent
cache = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or root / "target") / "mpi"
# Bytes of a job's output that are kept.
KEPT = 200_000
# Seconds after which a waiting process looks at the clock again.
STEP = 1
# Seconds in which the machine may stand still during a job. Ranks that hang, and yield, can keep it standing still.
STANDSTILL = 300


class CannotRun(Exception):
    """Something is missing on this machine."""


class Wrong(Exception):
    """The caller's mistake."""


@dataclass
class Finished:
    status: int
    output: str
    seconds: float
    timed_out: bool
    # Towline's counters, one object for each process that ended regularly.
    counters: List[dict] = field(default_factory=list)
    # What the ranks wrote about parts of the job, one object for each line.
    results: List[dict] = field(default_factory=list)
    # Names of files that stayed in shared memory.
    left: List[str] = field(default_factory=list)
    # Names of processes that went on.
    running: List[str] = field(default_factory=list)


def prepare(*command):
    """Runs one of the scripts of this folder that fetch and build. Raises CannotRun with what it says."""
    ended = subprocess.run([here / command[0], *command[1:]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(ended.stdout, end="", flush=True)
    if ended.returncode:
        raise CannotRun((ended.stdout.strip().splitlines() or [f"{command[0]} failed"])[-1])


def inside(version, command, **options):
    """Runs a command where this Open MPI is, and returns its output."""
    ended = subprocess.run([here / "inside", version, *map(str, command)], stdout=subprocess.PIPE, text=True,
                           stderr=subprocess.DEVNULL, **options)
    return ended.stdout


# Tests that spawn processes look first whether there are slots for them.
HERE = ("--host", "localhost:64")


def mpirun(version, side, ranks, command, limit, folder, environment=(), hosts=HERE, through=()):
    """Runs a command on some ranks, over the side's components, in a folder. `hosts` are mpirun's options that say where, and
    `through` is a command that gets the words of mpirun."""
    with tempfile.TemporaryDirectory(dir=_scratch()) as scratch:
        variables = {**side.variables, **dict(word.partition("=")[::2] for word in environment)}
        variables["MPI_TEST_RESULTS"] = f"{scratch}/results"
        if side.towline:
            variables["TOWLINE_MPI_COUNTERS"] = f"{scratch}/counters"
        # Ranks that wait let others run: there may be more of them than processors, and other work on the machine.
        words = [*through, "mpirun.openmpi", *hosts, "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
        words += ["-n", str(ranks), *side.options]
        for name in variables:
            words += ["-x", name]
        finished = _limited([here / "inside", version, *words, *map(str, command)], limit, folder,
                            {**os.environ, **variables, "MPI_TEST_LEFT": f"{scratch}/left",
                             "MPI_TEST_RUNNING": f"{scratch}/running"}, scratch)
        finished.counters = _lines(scratch, "counters")
        finished.results = _lines(scratch, "results")
        finished.left, finished.running = _list(scratch, "left"), _list(scratch, "running")
        return finished


def _list(scratch, name):
    """The lines of a file, which a job that was ended has not written."""
    file = pathlib.Path(scratch, name)
    return [line for line in file.read_text().splitlines() if line] if file.exists() else []


def _lines(scratch, prefix):
    """The objects in the files that processes wrote, each into one of its own. A process may end in the middle of a line."""
    result = []
    for file in sorted(pathlib.Path(scratch).glob(f"{prefix}.*")):
        for line in file.read_text().splitlines():
            try:
                result.append(json.loads(line))
            except ValueError:
                pass
    return result


def _limited(command, limit, folder, environment, scratch):
    """Runs a command, and ends all its processes at the time limit."""
    with open(f"{scratch}/output", "w+b") as output:
        started = os.times().elapsed
        process = subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        timed_out = True
        _running.add(process.pid)
        try:
            timed_out = not ends_within(limit, process)
        finally:
            _end(process.pid)
            process.wait()
            _running.discard(process.pid)
        seconds = os.times().elapsed - started
        output.seek(max(0, output.seek(0, os.SEEK_END) - KEPT))
        return Finished(process.returncode, output.read().decode(errors="replace"), seconds, timed_out)


def ends_within(limit, process):
    """Waits for a process, and returns whether it has ended within a number of seconds. The limit is for processes that hang. So a
    time in which the machine stood still does not count, up to `STANDSTILL`: the process could do nothing, either."""
    left = limit + STANDSTILL
    while limit > 0 and left > 0:
        begun = os.times().elapsed
        try:
            process.wait(STEP)
            return True
        except subprocess.TimeoutExpired:
            passed = os.times().elapsed - begun
            limit -= min(passed, 2 * STEP)
            left -= passed
    return False


# The process groups of running jobs.
_running = set()


def _end(group):
    """Ends a job. The first process in its own space of process ids is in this group: the others end with it."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass


def end_all_on_signals():
    """If this program is interrupted, its jobs end, too."""
    def stop(number, _):
        for group in list(_running):
            _end(group)
        os._exit(128 + number)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)


def _scratch():
    """The folder for files of running jobs."""
    folder = cache / "running"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def fresh(path):
    """An empty folder."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path
