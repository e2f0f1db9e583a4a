"""The tables and lists at the end of a run."""

from collections import Counter

from cases import ELSEWHERE, FAILED, PASSED, SKIPPED, TIMED_OUT
from verdicts import BOTH_FAIL, FLAKY, ONLY_OTHER, ONLY_STOCK

COLUMNS = ["run", PASSED, FAILED, TIMED_OUT, SKIPPED, ELSEWHERE, "other osc", "seconds", "messages", "MB", "one-sided"]


def rows(results):
    """The rows of the table: for each folder and side, the counts of its tests. A test counts with its first run."""
    counts = {}
    for result in results:
        for side, attempts in result.attempts.items():
            row = counts.setdefault((result.case.folder, side), Counter())
            first = attempts[0] if attempts else None
            parts = first.parts.values() if first else [SKIPPED]
            for outcome in parts:
                row[outcome] += 1
                row["run"] += outcome != SKIPPED
            if first:
                row["other osc"] += first.other_osc
                row["seconds"] += first.finished.seconds
                row["messages"] += first.sums.get("messages_sent", 0)
                row["MB"] += first.sums.get("bytes_sent", 0) / 1e6
                row["one-sided"] += sum(first.sums.get(key, 0) for key in ("puts", "gets", "atomics"))
    return counts


def table(results):
    """The table as text, with the sums of all folders at its end."""
    counts = rows(results)
    for (_, side), row in list(counts.items()):
        counts.setdefault(("all", side), Counter()).update(row)
    width = max([len(folder) for folder, _ in counts] + [6])
    lines = [f"{'folder':{width}}  {'side':11}" + "".join(f"  {column:>{max(6, len(column))}}" for column in COLUMNS)]
    for (folder, side), row in counts.items():
        cells = "".join(f"  {round(row[column]):{max(6, len(column))}}" for column in COLUMNS)
        lines.append(f"{folder:{width}}  {side:11}{cells}")
    return "\n".join(lines)


HEADINGS = {
    ONLY_OTHER: "Failures that only {side} has",
    FLAKY: "Flaky: both sides failed now and then, or the test is known to be flaky ({side})",
    ONLY_STOCK: "Failures that stock has and {side} has not",
    BOTH_FAIL: "Failures of both stock and {side}",
}


def lists(results, sides):
    """The failures by name, as text: for each side and verdict, with the number of failures of each side."""
    lines = []
    for side in sides:
        for verdict, heading in HEADINGS.items():
            found = [line for result in results for line in result.named(side, verdict)]
            if found or verdict == ONLY_OTHER:
                lines += ["", heading.format(side=side) + f": {len(found) or 'none'}", *found]
    reasons = Counter((result.case.skipped, result.case.folder) for result in results if result.case.skipped)
    if reasons:
        lines += ["", "Skipped on all sides"]
        lines += [f"  {count:3} of {folder}: {reason}" for (reason, folder), count in sorted(reasons.items())]
    for side in sides:
        excluded = [f"  {result.case.label}: {result.excluded(side)}" for result in results if result.excluded(side)]
        if excluded:
            lines += ["", f"Skipped over {side}: {len(excluded)}", *excluded]
        silent = [result.case.label for result in results if result.silent(side)]
        if silent:
            lines += ["", f"Passed over {side} without a message between ranks: {len(silent)}"]
            lines += [f"  {name}" for name in silent]
    for side in ["stock", *sides]:
        left = [f"  {result.case.label}: {' '.join(attempt.finished.left[:4])}" for result in results
                for attempt in result.attempts[side][:1] if attempt.finished.left]
        if left:
            lines += ["", f"Left files in shared memory over {side}: {len(left)}", *left]
    return "\n".join(lines)
