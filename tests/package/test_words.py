"""Docstrings, comments and messages are in plain English: openings and phrases that are not."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
OPENINGS = re.compile(r"(What|Whether|How|Where|Which|As)\b")
PHRASES = re.compile(
    r"\b(g(o|oes|one) on with|bears? a mark|told right|anew|nobody|whoever"
    r"|what (is|stands) there|behind the last|held against)\b".replace(" ", r"[\s#]+"),
    re.IGNORECASE,
)


def sources(*folders):
    """The names and texts of the Python files in these folders."""
    for file in sorted(file for folder in folders for file in (ROOT / folder).rglob("*.py")):
        if file != Path(__file__):
            yield str(file.relative_to(ROOT)), file.read_text()


def docstrings(text):
    """The name and docstring of each module, class and function in a source text."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield getattr(node, "name", "module"), ast.get_docstring(node) or ""


def test_docstrings_open_with_a_verb_or_a_noun():
    found = [
        f"{file}, {name}: {docstring}"
        for file, text in sources("streamgda")
        for name, docstring in docstrings(text)
        if OPENINGS.match(docstring)
    ]
    assert not found, "\n".join(found)


def test_no_archaic_phrases():
    texts = [
        *sources("streamgda", "tests", "bench"),
        ("README.md", (ROOT / "README.md").read_text()),
    ]
    found = [
        f"{file}, line {1 + text.count(chr(10), 0, match.start())}: {match[0]}"
        for file, text in texts
        for match in PHRASES.finditer(text)
    ]
    assert not found, "\n".join(found)
