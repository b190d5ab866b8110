"""Draw the figures and tables of the documents: ``python -m bench.gallery [--save]``."""

from __future__ import annotations

import argparse
import tempfile
import warnings
from importlib import import_module
from pathlib import Path

import matplotlib as mpl

from bench import report
from bench.gallery import material as materials
from bench.gallery.page import Section, excerpt, page

ROOT = Path(__file__).resolve().parents[2]
PAGE, PICTURES, EXCERPT = "bench/GALLERY.md", "bench/pictures", "docs/guide/models.md"
SECTIONS = (
    "document_000",
    "document_001",
    "document_002",
    "document_003",
    "document_004",
    "beyond",
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.gallery", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rows, for a trial run")
    parser.add_argument(
        "--save",
        action="store_true",
        help=f"write {PAGE}, the pictures, and the excerpt in {EXCERPT}",
    )
    options = parser.parse_args()
    if options.quick and options.save:
        parser.error("results of --quick are not saved: few rows")
    try:
        material = materials.stand_in() if options.quick else materials.real()
    except FileNotFoundError as error:
        parser.error(str(error))
    if options.save:
        save(material, ROOT)
    else:
        with tempfile.TemporaryDirectory() as folder:
            print(page(made(material, Path(folder)), Path(PICTURES).name, material.name))


def made(material: materials.Material, folder: Path) -> list[Section]:
    """Return all sections, and write their pictures to the folder."""
    mpl.use("Agg")  # works without a screen
    folder.mkdir(parents=True, exist_ok=True)
    sections = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # constant pixels
        for name in SECTIONS:
            section = import_module(f"bench.gallery.{name}").section(material)
            for item in section.items:
                item.save(folder)
            sections.append(section)
    return sections


def save(material: materials.Material, root: Path) -> None:
    """Write the pictures, the page, and its excerpt in the user guide, below a folder."""
    for old in (root / PICTURES).glob("*.png"):
        old.unlink()
    sections = made(material, root / PICTURES)
    (root / PAGE).write_text(page(sections, Path(PICTURES).name, material.name))
    guide = root / EXCERPT
    shown = excerpt(sections, f"../../{PICTURES}")
    guide.write_text(report.between(guide.read_text(), "gallery", shown))


if __name__ == "__main__":
    main()
