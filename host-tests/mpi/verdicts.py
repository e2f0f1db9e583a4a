"""Compares the outcomes of one test over two sides, each with one run or with several."""

from cases import PASSED, SKIPPED

# A verdict says whose failure it is.
BOTH_PASS, BOTH_FAIL, ONLY_STOCK, ONLY_OTHER, FLAKY, NOT_RUN = (
    "pass", "both fail", "only stock fails", "only the other side fails", "flaky", "not run")


def fails(outcome):
    return outcome not in (PASSED, SKIPPED)


def differ(stock, other):
    """Whether two runs have a test that passes in one of them and fails in the other."""
    return any(fails(outcome) != fails(other.get(name, "")) for name, outcome in stock.items()) or any(
        fails(outcome) for name, outcome in other.items() if name not in stock)


def verdict(stock, other, known_flaky=False):
    """The verdict on a test, from its outcomes over both sides. A failure that stock never had counts, however rare, unless the
    test is known to be flaky: then it counts if there is no run without it."""
    if all(outcome == SKIPPED for outcome in stock + other):
        return NOT_RUN
    stock_fails, other_fails = sum(map(fails, stock)), sum(map(fails, other))
    if not stock_fails and not other_fails:
        return BOTH_PASS
    if stock_fails == len(stock) and other_fails == len(other):
        return BOTH_FAIL
    if not stock_fails:
        return FLAKY if known_flaky and other_fails < len(other) else ONLY_OTHER
    if not other_fails:
        return ONLY_STOCK if stock_fails == len(stock) else FLAKY
    # Where stock fails now and then, a test that never passes over the other side is a failure of its own.
    return ONLY_OTHER if other_fails == len(other) and len(other) > 1 else FLAKY
