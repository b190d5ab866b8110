"""Every public name, parameter, default, attribute and command is what `contract.txt` says."""

from difflib import unified_diff
from pathlib import Path

from contract import contract

KEPT = Path(__file__).parents[1] / "contract.txt"


def test_the_public_contract_holds():
    kept, found = KEPT.read_text(encoding="utf-8"), contract()
    changes = unified_diff(
        kept.splitlines(), found.splitlines(), "contract.txt", "the package", "", "", 0, ""
    )
    assert kept == found, "\n".join(
        ["the public contract changed (`python tests/contract.py` prints what is):", *changes]
    )
