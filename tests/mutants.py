"""Measure the power of the tests: break the package in small ways and expect one to fail.

Each mutant replaces one piece of source text. Its named folders of tests run first; if they
all pass, the whole suite runs. A mutant that no test notices survives, and the program exits
with 1.

    python tests/mutants.py              all mutants, two at a time
    python tests/mutants.py merge chol   those whose name contains one of these words
    python tests/mutants.py --named      without the whole suite
    python tests/mutants.py --list       names only
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).parents[1]
# The copies always lie at the same place, because Numba's cache knows functions by their path.
COPIES = Path(tempfile.gettempdir()) / "streamgda-mutants"
COPIED = ("streamgda", "tests", "bench", "docs", "examples", "pyproject.toml", "README.md")
LONGEST = 1800  # seconds; a mutant that hangs is noticed as well


@dataclass(frozen=True)
class Mutation:
    """A mistake in one place of the package.

    Attributes
    ----------
    name : str
        The mistake in a few words.
    file : str
        Path within the package.
    tests : tuple of str
        Folders of the tests that should notice it.
    old, new : str
        Text that occurs once in the file, and the mistake that replaces it.
    """

    name: str
    file: str
    tests: tuple[str, ...]
    old: str
    new: str

    def apply(self, source: str) -> str:
        """Return the source with the mistake in it."""
        found = source.count(self.old)
        if found != 1:
            raise ValueError(f"{self.name}: {self.old!r} occurs {found} times in {self.file}")
        return source.replace(self.old, self.new)


def mutations() -> list[Mutation]:
    """Return the mutations in `mutations.txt`."""
    found = []
    text = Path(__file__).with_name("mutations.txt").read_text(encoding="utf-8")
    for section in text.split("\n== ")[1:]:
        file, *entries = section.strip().split("\n\n")
        for entry in entries:
            title, *lines = entry.split("\n")
            name, tests = re.fullmatch(r"(.*) \((.*)\)", title).groups()
            old, new = ("\n".join(x[2:] for x in lines if x[0] == sign) for sign in "-+")
            paths = tuple(f"tests/{room}" for room in tests.split())
            found.append(Mutation(name, file, paths, old, new))
    return found


@dataclass(frozen=True)
class Result:
    mutation: Mutation
    caught_by: str  # the first test that failed; empty for a survivor
    seconds: float


def copy_package(folder: Path) -> None:
    """Copy what the tests need; unchanged files keep their times, so caches stay valid."""
    for name in COPIED:
        source, target = ROOT / name, folder / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", ".*")
            shutil.copytree(source, target, dirs_exist_ok=True, ignore=ignored)
        else:
            shutil.copy2(source, target)


def run_tests(folder: Path, *arguments: str) -> str:
    """Return the first test that fails, "" if all pass."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(folder),
        "NUMBA_CACHE_DIR": str(COPIES / "numba"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *arguments]
    try:
        done = subprocess.run(
            command,
            check=False,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LONGEST,
        )
    except subprocess.TimeoutExpired:
        return "a test that waits without end"
    if done.returncode == 0:
        return ""
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return failed[1] if failed else f"exit code {done.returncode}"


def judge(mutation: Mutation, folder: Path, named_only: bool) -> Result:
    """Apply a mutation to the copy in a folder, run the tests, and undo it."""
    started = time.monotonic()
    file = folder / "streamgda" / mutation.file
    original = file.read_text(encoding="utf-8")
    times = file.stat()
    file.write_text(mutation.apply(original), encoding="utf-8")
    try:
        caught_by = run_tests(folder, *mutation.tests)
        if not (caught_by or named_only):
            caught_by = run_tests(folder, "-n", "auto")
    finally:
        file.write_text(original, encoding="utf-8")
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    return Result(mutation, caught_by, time.monotonic() - started)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("words", nargs="*", help="run the mutants whose name contains one of them")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time")
    parser.add_argument("--named", action="store_true", help="run the named test files only")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    given = parser.parse_args()
    chosen = [m for m in mutations() if not given.words or any(w in m.name for w in given.words)]
    if given.list:
        print(*(f"{m.file}: {m.name}" for m in chosen), sep="\n")
        return 0
    folders: SimpleQueue[Path] = SimpleQueue()
    for job in range(given.jobs):
        folder = COPIES / str(job)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        copy_package(folder)
        folders.put(folder)

    def work(mutation: Mutation) -> Result:
        folder = folders.get()
        try:
            return judge(mutation, folder, given.named)
        finally:
            folders.put(folder)

    print("| file | mutation | caught by | seconds |", "| --- | --- | --- | --- |", sep="\n")
    survivors = 0
    with ThreadPoolExecutor(given.jobs) as pool:
        for result in pool.map(work, chosen):
            survivors += not result.caught_by
            caught_by = f"`{result.caught_by}`" if result.caught_by else "**none**"
            name, file = result.mutation.name, result.mutation.file
            print(f"| `{file}` | {name} | {caught_by} | {result.seconds:.0f} |", flush=True)
    print(f"\n{len(chosen) - survivors} of {len(chosen)} mutants are caught.")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
