"""The MPICH project's test programs as cases."""

import re
import subprocess

import jobs
import testlists
from cases import FAILED, PASSED, TIMED_OUT, Case

FOLDERS = ["attr", "coll", "comm", "datatype", "errhan", "group", "info", "init", "pt2pt", "rma", "spawn", "threads", "topo"]
# The list of a folder that runs programs with many types and sizes, for hours: each program runs once for each type.
TYPES = "testlist.dtp"
# The lists of a folder. Those with other names vary MPICH's own settings, or need a graphics processor.
LISTS = ["testlist", TYPES]
# Seconds for a program whose entry has no limit, and the least limit. MPICH's own limit is that of a quiet machine.
LIMIT = 180
# GiB that a program may need, as its entry says.
MEMORY = 8


def cases(version, folders, chosen, ranks):
    """The cases of the folders. `chosen` takes a folder and the name of a program, and says whether it is wanted. `ranks` takes
    the same, and gives the number of ranks that is the most for the program."""
    jobs.prepare("build", version, "mpich")
    built = jobs.cache / version / "mpich"
    of_mpi = mpi_version(version)
    result = []
    for folder in folders or FOLDERS:
        for place, entry in entries(built, jobs.cache / "sources/mpich/test/mpi", folder):
            if chosen(place, entry.program):
                result.append(case(built, place, entry.most(ranks(place, entry.program)), of_mpi))
    compile_programs(version, built, result)
    # With fewer ranks, entries may have become equal.
    return list({case.label: case for case in result}.values())


def entries(built, sources, folder):
    """The entries of a folder and of the folders that its list names."""
    for name in LISTS:
        # The configuration writes some lists.
        file = next((path for path in (built / folder / name, sources / folder / name) if path.exists()), None)
        found = testlists.parse(file.read_text()) if file else []
        for entry in testlists.once_for_each_type(found) if name == TYPES else found:
            if (sources / folder / entry.program).is_dir():
                yield from entries(built, sources, f"{folder}/{entry.program}")
            else:
                yield folder, entry


def case(built, folder, entry, of_mpi):
    def judge(finished):
        if finished.timed_out:
            return {"": TIMED_OUT}
        return {"": PASSED if testlists.passed(entry.check, finished.status, finished.output) else FAILED}

    skipped = ""
    if not entry.strict:
        skipped = "not of the MPI standard"
    elif entry.version > of_mpi:
        skipped = f"needs MPI {entry.version[0]}.{entry.version[1]}"
    elif entry.memory > MEMORY:
        skipped = f"needs more than {MEMORY} GiB"
    directory = built / folder
    return Case(folder, entry.label, entry.ranks, [f"./{entry.program}", *entry.arguments], directory,
                max(LIMIT, entry.limit or 0), judge, entry.environment, folder.startswith(("rma", "threads/rma")), skipped)


def compile_programs(version, built, all_cases):
    """Compiles the programs of the cases. Those that cannot be compiled for this MPI are skipped."""
    for folder in dict.fromkeys(case.folder for case in all_cases):
        of_folder = [case for case in all_cases if case.folder == folder and not case.skipped]
        programs = list(dict.fromkeys(case.command[0][2:] for case in of_folder))
        missing = [program for program in programs if not (built / folder / program).exists()]
        if not missing:
            continue
        print(f"compiling {len(missing)} programs of {folder}", flush=True)
        log = built / folder / "make.log"
        with open(log, "w") as output:
            subprocess.run([jobs.here / "inside", version, "make", "-k", "-j2", "--output-sync", *missing],
                           cwd=built / folder, stdout=output, stderr=subprocess.STDOUT)
        said = log.read_text()
        for case in of_folder:
            program = case.command[0][2:]
            if not (built / folder / program).exists():
                case.skipped = why_not_compiled(program, said)


def why_not_compiled(program, said):
    """The first error about a program in the output of make."""
    for line in said.splitlines():
        if re.search(rf"\b{re.escape(program)}\.(c|o)\b", line):
            found = re.search(r"error: (.*)|(undefined reference to .*)", line)
            if found:
                return "does not compile: " + (found.group(1) or found.group(2))
    return "does not compile"


def mpi_version(version):
    """The version of the standard that this Open MPI declares."""
    header = jobs.inside(version, ["sh", "-c", "cat $(mpicc.openmpi --showme:incdirs | cut -d ' ' -f 1)/mpi.h"])
    numbers = [re.search(rf"#define {name} +(\d+)", header) for name in ("MPI_VERSION", "MPI_SUBVERSION")]
    if not all(numbers):
        raise jobs.CannotRun(f"mpi.h of Open MPI {version} has no version")
    return tuple(int(number.group(1)) for number in numbers)
