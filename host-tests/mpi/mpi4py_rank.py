"""A rank that runs one module of mpi4py's tests: mpi4py_rank.py FOLDER MODULE. Writes a line of JSON when a test method starts
and when it ends, into a file of its own whose name begins with the variable MPI_TEST_RESULTS."""

import json
import os
import sys
import unittest

folder, module = sys.argv[1:]
results = open(f"{os.environ['MPI_TEST_RESULTS']}.{os.getpid()}", "a", buffering=1)
sys.dont_write_bytecode = True
sys.path.insert(0, folder)
import main  # noqa: E402  (mpi4py's own test program, from that folder)


class Result(unittest.TextTestResult):
    def tell(self, test, outcome):
        from mpi4py import MPI
        results.write(json.dumps({"test": test.id(), "rank": MPI.COMM_WORLD.rank, "outcome": outcome}) + "\n")

    def startTest(self, test):
        super().startTest(test)
        self.failed = False
        self.tell(test, "started")

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.failed = True

    def addError(self, test, error):
        super().addError(test, error)
        self.failed = True

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        self.failed = self.failed or error is not None

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.failed = True

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.skipped_test = test.id()

    def stopTest(self, test):
        super().stopTest(test)
        skipped = getattr(self, "skipped_test", None) == test.id()
        self.tell(test, "failed" if self.failed else "skipped" if skipped else "passed")


main.TestProgram(module=None, argv=[sys.argv[0], "--no-builddir", "-i", rf"^test_{module}\.py$"],
                 testRunner=unittest.TextTestRunner(resultclass=Result, stream=sys.stderr, verbosity=1))
