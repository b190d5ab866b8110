"""The figures and tables of the documents beside ours: ``python -m bench.gallery [--save]``."""

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
PAGE, PICTURES = "bench/GALLERY.md", "bench/pictures"
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
    parser.add_argument("--quick", action="store_true", help="few rows, to try it out")
    parser.add_argument(
        "--save",
        action="store_true",
        help=f"write {PAGE}, the pictures and the README's part of them",
    )
    options = parser.parse_args()
    if options.quick and options.save:
        parser.error("pictures of few rows are not saved")
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
    """All sections; their pictures are in the folder."""
    mpl.use("Agg")  # there may be no screen
    folder.mkdir(parents=True, exist_ok=True)
    sections = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on constant pixels
        for name in SECTIONS:
            section = import_module(f"bench.gallery.{name}").section(material)
            for item in section.items:
                item.save(folder)
            sections.append(section)
    return sections


def save(material: materials.Material, root: Path) -> None:
    """Write pictures, page, and what the README shows of them, below a folder."""
    for old in (root / PICTURES).glob("*.png"):
        old.unlink()
    sections = made(material, root / PICTURES)
    (root / PAGE).write_text(page(sections, Path(PICTURES).name, material.name))
    readme = root / "README.md"
    shown = excerpt(sections, PICTURES, PAGE)
    readme.write_text(report.between(readme.read_text(), "gallery", shown))


if __name__ == "__main__":
    main()
