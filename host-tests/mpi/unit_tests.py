#!/usr/bin/env python3
"""Tests of the scripts of this folder: how they read lists and outcomes, and what they conclude. They need
nothing but Python."""

import importlib.machinery
import importlib.util
import itertools
import pathlib
import subprocess
import sys
import unittest
from unittest import mock

here = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(here))
import cases
import jobs
import mpi4py_suite
import mpich
import report
import sides
import testlists
import verdicts

loader = importlib.machinery.SourceFileLoader("suites", str(here / "suites"))
suites = importlib.util.module_from_spec(importlib.util.spec_from_loader("suites", loader))
sys.modules["suites"] = suites
loader.exec_module(suites)


def finished(output="", status=0, timed_out=False, counters=(), results=()):
    return jobs.Finished(status, output, 1.0, timed_out, list(counters), list(results))


class Lists(unittest.TestCase):
    def test_all_keys_of_an_entry_are_read(self):
        [entry] = testlists.parse("send 4 arg=-a arg=b=c env=A=1 timeLimit=600 resultTest=TestStatus mpiversion=3.1 "
                                  "strict=false mem=6.5 xfail=ticket1\n")
        self.assertEqual(entry, testlists.Entry("send", 4, ("-a", "b=c"), ("A=1",), "TestStatus", 600, (3, 1), False, 6.5))

    def test_comments_commands_and_unset_programs_are_no_entries(self):
        self.assertEqual(testlists.parse("# a\n\n!../util:all\n@namepub@namepub 2\n#x 2\n"), [])

    def test_two_ranks_are_the_default(self):
        self.assertEqual([entry.ranks for entry in testlists.parse("a\nb 1 # c\n")], [2, 1])

    def test_variants_by_variables_of_mpich_are_one_entry(self):
        entries = testlists.parse("a 2\na 2 env=MPIR_CVAR_X=1\na 2 env=OTHER=1\na 3\n")
        self.assertEqual([entry.label for entry in entries], ["a 2", "a 2 OTHER=1", "a 3"])

    def test_ranks_are_clamped_and_nothing_else(self):
        [entry] = testlists.parse("a 10 arg=x timeLimit=9\n")
        self.assertEqual(entry.most(4), testlists.Entry("a", 4, ("x",), limit=9))
        self.assertEqual(entry.most(16), entry)

    def test_a_list_of_types_runs_each_type_once(self):
        entries = testlists.parse("a 2 arg=-type=X arg=-n=1\na 2 arg=-type=X arg=-n=2\na 2 arg=-type=Y arg=-n=2\nb 2\n")
        labels = [entry.label for entry in testlists.once_for_each_type(entries)]
        self.assertEqual(labels, ["a 2 -type=X -n=1", "a 2 -type=Y -n=2", "b 2"])


class Outcomes(unittest.TestCase):
    def test_a_program_passes_by_its_line_and_its_status(self):
        self.assertTrue(testlists.passed("", 0, "a warning\n No Errors\n"))
        self.assertFalse(testlists.passed("", 1, " No Errors\n"))
        self.assertFalse(testlists.passed("", 0, "Found 3 errors\n"))
        self.assertFalse(testlists.passed("", 0, "there are No Errors here\n"))

    def test_a_program_that_has_to_fail_passes_by_its_status(self):
        for check in ("TestStatus", "TestErrFatal"):
            self.assertTrue(testlists.passed(check, 1, ""))
            self.assertFalse(testlists.passed(check, 0, " No Errors\n"))
        self.assertTrue(testlists.passed("TestStatusNoErrors", 1, " No Errors\n"))
        self.assertFalse(testlists.passed("TestStatusNoErrors", 0, " No Errors\n"))

    def test_the_worst_rank_decides_about_a_method(self):
        def outcome(*lines, **others):
            results = [{"test": "t", "rank": rank, "outcome": outcome} for rank, outcome in lines]
            return mpi4py_suite.outcomes(finished(results=results, **others))["t"]
        begun = [(0, "started"), (1, "started"), (0, "passed")]
        self.assertEqual(outcome(*begun, (1, "failed"), status=1), "failed")
        self.assertEqual(outcome(*begun, (1, "passed")), "passed")
        self.assertEqual(outcome(*begun, status=1), "failed")
        self.assertEqual(outcome(*begun, timed_out=True), "timed out")
        self.assertEqual(outcome((0, "skipped")), "skipped")

    def test_a_job_that_fails_outside_its_methods_fails(self):
        good = [{"test": "t", "rank": 0, "outcome": "passed"}]
        self.assertEqual(mpi4py_suite.outcomes(finished(results=good, status=139))["start or end of the job"], "failed")
        self.assertEqual(mpi4py_suite.outcomes(finished(results=good))["start or end of the job"], "passed")

    def test_the_reason_why_a_program_does_not_compile_is_its_own(self):
        said = ("/src/other.c:1:2: error: no such thing\n/src/bcast.c:4:5: warning: old\n"
                "/usr/bin/ld: bcast.o: in function `main':\nbcast.c:(.text+0x1): undefined reference to `MPI_Bcast_init'\n")
        self.assertEqual(mpich.why_not_compiled("bcast", said), "does not compile: undefined reference to `MPI_Bcast_init'")
        self.assertEqual(mpich.why_not_compiled("cast", said), "does not compile")


class Proof(unittest.TestCase):
    def test_a_pass_needs_counters_of_each_rank(self):
        line = {"component": "mtl", "messages_sent": 1}
        for lines, outcome in (([line, line], "passed"), ([line], "not over Towline"), ([], "not over Towline")):
            self.assertEqual(cases.proven("mtl", 2, {"": "passed"}, finished(counters=lines)), {"": outcome})

    def test_counters_of_the_other_component_prove_nothing(self):
        lines = [{"component": "btl"}] * 2
        self.assertEqual(cases.proven("mtl", 2, {"": "passed"}, finished(counters=lines)), {"": "not over Towline"})

    def test_one_rank_and_failures_need_no_counters(self):
        self.assertEqual(cases.proven("mtl", 1, {"": "passed"}, finished()), {"": "passed"})
        self.assertEqual(cases.proven("mtl", 2, {"": "failed"}, finished()), {"": "failed"})
        self.assertEqual(cases.proven("mtl", 2, {"": "passed"}, finished(status=1)), {"": "passed"})


class Verdicts(unittest.TestCase):
    def check(self, stock, other, expected, **options):
        outcomes = {"p": "passed", "f": "failed", "t": "timed out", "s": "skipped", "e": "not over Towline"}
        found = verdicts.verdict([outcomes[x] for x in stock], [outcomes[x] for x in other], **options)
        self.assertEqual(found, expected)

    def test_verdicts(self):
        self.check("p", "p", verdicts.BOTH_PASS)
        self.check("s", "s", verdicts.NOT_RUN)
        self.check("f", "t", verdicts.BOTH_FAIL)
        self.check("pppppp", "fppppp", verdicts.ONLY_OTHER)
        self.check("pppppp", "eeeeee", verdicts.ONLY_OTHER)
        self.check("ffffff", "pppppp", verdicts.ONLY_STOCK)
        self.check("fppppp", "pppppp", verdicts.FLAKY)
        self.check("ppfppp", "fppppp", verdicts.FLAKY)
        self.check("ppfppp", "ffffff", verdicts.ONLY_OTHER)

    def test_a_known_flaky_test_fails_if_each_run_fails(self):
        self.check("pppppp", "fppppp", verdicts.FLAKY, known_flaky=True)
        self.check("pppppp", "ffffff", verdicts.ONLY_OTHER, known_flaky=True)

    def test_sides_differ_by_passes(self):
        self.assertFalse(verdicts.differ({"a": "failed"}, {"a": "timed out"}))
        self.assertFalse(verdicts.differ({"a": "passed"}, {"a": "skipped"}))
        self.assertTrue(verdicts.differ({"a": "passed"}, {"a": "not over Towline"}))
        self.assertTrue(verdicts.differ({"a": "passed"}, {}))
        self.assertTrue(verdicts.differ({}, {"a": "failed"}))


class Reports(unittest.TestCase):
    def result(self, stock, other, skipped=""):
        case = cases.Case("pt2pt", "send 2", 2, [], None, 1, None, skipped=skipped)
        runs = [[cases.Attempt({"": outcome}, finished()) for outcome in outcomes] for outcomes in (stock, other)]
        return suites.Result(case, {"stock": runs[0], "mtl": runs[1]}, [])

    def test_the_table_counts_first_runs(self):
        counts = report.rows([self.result(["passed"], ["failed", "passed"]), self.result([], [], "why")])
        row = counts["pt2pt", "mtl"]
        self.assertEqual((row["run"], row["failed"], row["passed"], row["skipped"]), (1, 1, 0, 1))

    def test_failures_have_names_and_counts(self):
        text = report.lists([self.result(["passed"] * 2, ["failed", "passed"])], ["mtl"])
        self.assertIn("only mtl has: 1\n  pt2pt/send 2  (stock passes; mtl failed 1 of 2)", text)
        skipped = self.result(["passed"], [])
        skipped.known.append(suites.Exclusion("mtl", "skip", "pt2pt/send", "why"))
        self.assertIn("Skipped over mtl: 1\n  pt2pt/send 2: why", report.lists([skipped], ["mtl"]))
        self.assertIn("only mtl has: none", report.lists([self.result(["passed"], ["passed"])], ["mtl"]))


class Files(unittest.TestCase):
    def test_exclusions_have_reasons_and_match_by_name_or_label(self):
        text = "# x\n4.1 skip rma/put: is slow: very\nany flaky pt2pt/a* 2: is late\n"
        [one, two] = suites.exclusions(text, "4.1")
        self.assertEqual((one.kind, one.reason), ("skip", "is slow: very"))
        self.assertTrue(one.names("rma/put 4 -x"))
        self.assertFalse(one.names("rma/put2 4"))
        self.assertTrue(two.names("pt2pt/all 2"))
        self.assertFalse(two.names("pt2pt/all 3"))
        self.assertEqual(suites.exclusions(text, "5.0"), [two])
        [three] = suites.exclusions("5.0/mtl skip init/session*: needs ob1\n", "5.0")
        self.assertEqual((one.component, three.component), ("", "mtl"))
        for bad in ("4.1 skip rma/put", "4.2 skip rma/put: slow", "4.1 rma/put: slow"):
            self.assertRaises(ValueError, suites.exclusions, bad, "4.1")

    def test_the_files_of_this_folder_are_right(self):
        suites.exclusions((here / "exclusions.txt").read_text(), "4.1")
        for name in suites.subset_of((here / "subset.txt").read_text()):
            self.assertIn(name.partition("/")[0], [*mpich.FOLDERS, "mpi4py"])


class Sides(unittest.TestCase):
    def test_stock_takes_the_transport(self):
        self.assertIn("vader,tcp,self", sides.stock("4.1", "sm").options)
        self.assertIn("sm,tcp,self", sides.stock("5.0", "sm").options)
        self.assertIn("tcp,self", sides.stock("5.0", "udp").options)

    def test_a_missing_component_is_the_callers_mistake(self):
        self.assertRaises(jobs.Wrong, sides.towline, "mtl", "4.1", "sm", "/nowhere")


class Limits(unittest.TestCase):
    def test_a_command_past_its_limit_ends_with_all_its_processes(self):
        import tempfile
        with tempfile.TemporaryDirectory() as scratch:
            ended = jobs._limited(["sh", "-c", "sleep 1000 & wait"], 1, scratch, {"PATH": "/usr/bin:/bin"}, scratch)
        self.assertTrue(ended.timed_out)

    def waits(self, steps, seconds):
        """Waits at most 10 s for a process that ends after so many steps, each of which takes so many seconds."""
        clock = itertools.count(0, seconds)
        process = mock.Mock()
        process.wait.side_effect = [subprocess.TimeoutExpired("job", 1)] * steps + [0] * 100
        with mock.patch.object(jobs.os, "times", lambda: mock.Mock(elapsed=next(clock))):
            return jobs.ends_within(10, process)

    def test_a_process_is_waited_for_until_the_limit(self):
        self.assertTrue(self.waits(9, 1))
        self.assertFalse(self.waits(10, 1))

    def test_a_machine_that_stands_still_does_not_use_the_limit_up(self):
        self.assertTrue(self.waits(4, 20))
        self.assertFalse(self.waits(5, 20))

    def test_a_machine_that_stands_still_for_too_long_does(self):
        self.assertTrue(self.waits(3, 100))
        self.assertFalse(self.waits(4, 100))


if __name__ == "__main__":
    unittest.main()
