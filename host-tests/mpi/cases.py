"""A case is one job of a suite. It has parts, the tests whose outcomes are compared: one in most suites, many in mpi4py's."""

import pathlib
from dataclasses import dataclass, field
from typing import Callable, Dict, List, Tuple

import jobs

PASSED, FAILED, TIMED_OUT, SKIPPED, ELSEWHERE = "passed", "failed", "timed out", "skipped", "not over Towline"


@dataclass
class Case:
    # The suite's folder or group, and the test's name in it.
    folder: str
    name: str
    ranks: int
    command: List[str]
    # The working directory.
    directory: pathlib.Path
    # Seconds.
    limit: int
    # Gives the outcome of each part of a finished job.
    judge: Callable[[jobs.Finished], Dict[str, str]]
    environment: Tuple[str, ...] = ()
    # Whether the case tests one-sided operations.
    one_sided: bool = False
    # If the case cannot run, why.
    skipped: str = ""

    @property
    def label(self):
        return f"{self.folder}/{self.name}"


@dataclass
class Attempt:
    """One run of a case over one side."""

    parts: Dict[str, str]
    finished: jobs.Finished
    # Sums of Towline's counters.
    sums: Dict[str, int] = field(default_factory=dict)
    # Whether one-sided operations went past Towline's BTL.
    other_osc: bool = False


def attempt(case, version, side, limit):
    """Runs a case over a side."""
    finished = jobs.mpirun(version, side, case.ranks, case.command, limit, case.directory, case.environment)
    parts = case.judge(finished)
    result = Attempt(parts, finished)
    if side.towline:
        for line in finished.counters:
            for key, value in line.items():
                if key != "component":
                    result.sums[key] = result.sums.get(key, 0) + value
        result.parts = proven(side.name, case.ranks, parts, finished)
        result.other_osc = case.one_sided and not sum(result.sums.get(key, 0) for key in ("puts", "gets", "atomics"))
    return result


def proven(component, ranks, parts, finished):
    """A part passed only if Towline's component ran in each process. A job that had to abort has no counters."""
    lines = [line for line in finished.counters if line.get("component") == component]
    if finished.status != 0 or ranks == 1 or len(lines) >= ranks:
        return parts
    return {name: ELSEWHERE if outcome == PASSED else outcome for name, outcome in parts.items()}
