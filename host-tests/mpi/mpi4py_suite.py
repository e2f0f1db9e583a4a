"""mpi4py's own tests as cases: one job for each of its modules and number of ranks. The parts of a job are the test methods."""

import jobs
from cases import FAILED, PASSED, SKIPPED, TIMED_OUT, Case

# Seconds for a module.
LIMIT = 180
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
    command = [built / "bin/python3", jobs.here / "mpi4py_rank.py", built / "test", module]
    return Case("mpi4py", f"{module} {ranks}", ranks, command, built / "test", LIMIT, outcomes, (), module in ONE_SIDED)


def outcomes(finished):
    """The outcome of each method of a job, the worst of any rank. Ranks write a line before each method and one after it."""
    known = {}
    for line in finished.results:
        begun = TIMED_OUT if finished.timed_out else FAILED
        known[line["test"], line["rank"]] = begun if line["outcome"] == "started" else line["outcome"]
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
