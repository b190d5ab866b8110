"""Sections and items of the gallery, as Markdown and small PNG files."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.report import Table

DPI = 200
COLOURS, GREYS = 256, 16  # palette sizes, enough for shading and digits at a third of the bytes


@dataclass(frozen=True)
class Item:
    """One figure or table of a document, and ours.

    Attributes
    ----------
    title : str
        Name of the figure or table in the document.
    figures : tuple of str
        Figures and tables of the document that ours shows.
    theirs : str
        Description of the document's figure, with its numbers.
    name : str
        Name of our picture's file, without extension.
    figure : matplotlib.figure.Figure
        Our figure.
    why : str
        Differences and their reasons.
    table : Table, optional
        Numbers of the document and ours.
    grey : bool
        True if the picture has no colours.
    caption : str
        Caption of the picture in the user guide; empty if it is not shown there.
    """

    title: str
    figures: tuple[str, ...]
    theirs: str
    name: str
    figure: Any
    why: str
    table: Table | None = None
    grey: bool = False
    caption: str = ""

    def save(self, folder: Path) -> None:
        """Write the picture, and close the figure."""
        import matplotlib.pyplot as plt
        from PIL import Image

        with io.BytesIO() as drawn:
            self.figure.savefig(drawn, format="png", dpi=DPI)
            image = Image.open(drawn).convert("RGB")
        # This method keeps rare colours, such as those of markers and their legend.
        rare = Image.Quantize.MAXCOVERAGE
        image = image.quantize(GREYS if self.grey else COLOURS, method=rare, kmeans=4)
        image.save(folder / f"{self.name}.png", optimize=True)
        plt.close(self.figure)

    def markdown(self, pictures: str) -> str:
        """Return the item with the document on the left and ours on the right."""
        shown = f"![{self.title}: ours]({pictures}/{self.name}.png)"
        theirs = self.theirs.replace("|", r"\|")
        beside = Table(("the document", "ours"), [(theirs, shown)]).markdown()
        parts = [f"### {self.title}", beside, self.why]
        return "\n\n".join(parts + ([self.table.markdown()] if self.table else []))


@dataclass(frozen=True)
class Section:
    """Section on one document, or beyond the documents."""

    title: str
    items: list[Item]

    def markdown(self, pictures: str) -> str:
        """Return heading, the list of the document's figures, and items."""
        figures = [(figure, item.title) for item in self.items for figure in item.figures]
        listed = [Table(("figure of the document", "drawn in"), figures).markdown()]
        items = [item.markdown(pictures) for item in self.items]
        return "\n\n".join([f"## {self.title}", *listed[: len(figures)], *items])


def page(sections: Iterable[Section], pictures: str, made_of: str) -> str:
    """Return the whole page."""
    head = (
        "# Gallery\n\nEach figure and table of the five documents that this package implements, "
        "next to ours. `python -m bench.gallery --save` generates this page and its numbers from "
        f"{made_of}. Statements of the documents are quoted, and their pictures are described."
    )
    return "\n\n".join([head, *(section.markdown(pictures) for section in sections)]) + "\n"


def excerpt(sections: Iterable[Section], pictures: str) -> str:
    """Return the excerpt for the user guide."""
    items = [item for section in sections for item in section.items if item.caption]
    shown = [f"![{item.title}]({pictures}/{item.name}.png)\n\n{item.caption}" for item in items]
    return "\n\n".join(shown)


def below(value: float, bound: float) -> str:
    """Format a rounding error, whose digits depend on the processor, by a bound."""
    return f"less than {bound:.0e}" if value < bound else f"{value:.0e}"


def percent(share: float) -> str:
    """Format a fraction as per cent with one decimal."""
    return f"{100 * share:.1f} %"


def numbers(values: Iterable[float], digits: int = 2) -> str:
    """Format numbers, separated by commas."""
    return ", ".join(f"{round(float(value), digits) + 0.0:.{digits}f}" for value in values)
