"""The mutations in `mutations.txt` still apply to the source."""

from pathlib import Path

from mutants import ROOT, mutations

import streamgda

PACKAGE = Path(streamgda.__file__).parent


def test_every_mutation_changes_one_place():
    for mutation in mutations():
        source = (PACKAGE / mutation.file).read_text(encoding="utf-8")
        compile(mutation.apply(source), mutation.file, "exec")


def test_names_and_test_files():
    found = mutations()
    assert len(found) == len({mutation.name for mutation in found}) >= 60
    assert all((ROOT / test).exists() for mutation in found for test in mutation.tests)
