"""The lists of the MPICH project's test programs: which programs run, with how many ranks, arguments and limits."""

import re
from dataclasses import dataclass
from typing import Optional, Tuple


@dataclass(frozen=True)
class Entry:
    """One line of a list."""

    program: str
    ranks: int = 2
    arguments: Tuple[str, ...] = ()
    environment: Tuple[str, ...] = ()
    # How the outcome is judged; empty means by the line "No Errors".
    check: str = ""
    # Seconds, if the list has a limit.
    limit: Optional[int] = None
    # The least MPI version.
    version: Tuple[int, int] = (0, 0)
    # Whether the program uses nothing but the standard.
    strict: bool = True
    # GiB that all ranks need together.
    memory: float = 0

    def most(self, ranks: int) -> "Entry":
        """The same with at most this many ranks."""
        return Entry(**{**self.__dict__, "ranks": min(self.ranks, ranks)})

    @property
    def label(self) -> str:
        """What tells it from other entries of the list."""
        return " ".join([self.program, str(self.ranks), *self.arguments, *self.environment])


def parse(text: str):
    """The entries of a list. A folder is an entry, too: its program has that folder's name."""
    entries = []
    for line in text.splitlines():
        words = re.sub(r"#.*", "", line).split()
        if not words or words[0].startswith(("!", "@")):
            continue
        entry = _entry(words)
        # Entries that differ only in variables of MPICH are one test for other implementations.
        if entry not in entries:
            entries.append(entry)
    return entries


def _entry(words):
    arguments, environment, others = [], [], {}
    for word in words[2:]:
        key, _, value = word.partition("=")
        if key == "arg":
            arguments.append(value)
        elif key == "env":
            if not value.startswith("MPIR_CVAR_"):
                environment.append(value)
        elif key == "timeLimit":
            others["limit"] = int(value)
        elif key == "resultTest":
            others["check"] = value
        elif key == "mpiversion":
            major, _, minor = value.partition(".")
            others["version"] = (int(major), int(minor or 0))
        elif key == "strict":
            others["strict"] = value.lower() != "false"
        elif key == "mem":
            others["memory"] = float(value)
        # The rest concerns MPICH and its launcher alone. Expected failures (xfail) are expected of MPICH.
    ranks = int(words[1]) if len(words) > 1 else 2
    return Entry(words[0], ranks, tuple(arguments), tuple(environment), **others)


def once_for_each_type(entries):
    """The first entry of each program and type."""
    first = {}
    for entry in entries:
        first.setdefault((entry.program, next((word for word in entry.arguments if word.startswith("-type=")), "")), entry)
    return list(first.values())


def passed(check: str, status: int, output: str) -> bool:
    """Whether a program did what its entry expects, by the job's exit status and its output."""
    said = any(re.fullmatch(r"\s*No [Ee]rrors\s*", line) for line in output.splitlines())
    if check in ("TestStatus", "TestErrFatal"):
        return status != 0
    if check == "TestStatusNoErrors":
        return status != 0 and said
    return status == 0 and said
