"""mpi4py's own tests as cases: one job for each of its modules and number of ranks. The parts of a job are the test methods."""

import json
import pathlib
import re

import jobs
from cases import FAILED, PASSED, SKIPPED, TIMED_OUT, Case

# Seconds for a module.
LIMIT = 300
RANKS = [1, 2, 3]
# Modules with tests of one-sided operations.
ONE_SIDED = ("rma", "rma_nb", "win")
# The worst outcome of a method on any rank is the job's.
ORDER = [FAILED, TIMED_OUT, PASSED, SKIPPED]


def cases(version, chosen, ranks):
    """The cases of all modules. `chosen` takes the suite's name and a module, and says whether it is wanted."""
    jobs.prepare("build", version, "mpi4py")
    built = jobs.cache / version / "mpi4py"
    modules = sorted(path.stem[len("test_"):] for path in (built / "test").glob("test_*.py"))
    return [case(built, module, number) for number in RANKS if number <= ranks for module in modules
            if chosen("mpi4py", module)]


def case(built, module, ranks):
    # Each rank writes a line for each method before and after it.
    marker = "towline-mpi4py "
    command = [built / "bin/python3", jobs.here / "mpi4py_rank.py", built / "test", module, marker]
    return Case("mpi4py", f"{module} {ranks}", ranks, command, built / "test", LIMIT,
                lambda finished: outcomes(finished, marker), (), module in ONE_SIDED)


def outcomes(finished, marker):
    """The outcome of each method of a job, the worst of any rank."""
    known = {}
    for line in re.findall(re.escape(marker) + r"(\{[^{}]*\})", finished.output):
        try:
            line = json.loads(line)
        except ValueError:
            continue
        known.setdefault((line["test"], line["rank"]), TIMED_OUT if finished.timed_out else FAILED)
        if line["outcome"] != "started":
            known[line["test"], line["rank"]] = line["outcome"]
    parts = {}
    for (test, _), outcome in known.items():
        parts[test] = min(parts.get(test, SKIPPED), outcome, key=ORDER.index)
    # A job that failed without a failure of a method failed at its start or end.
    failed = finished.timed_out or finished.status != 0
    if failed and not any(outcome in (FAILED, TIMED_OUT) for outcome in parts.values()):
        parts["start or end of the job"] = TIMED_OUT if finished.timed_out else FAILED
    else:
        parts["start or end of the job"] = PASSED
    return parts
