"""What the gallery is made of, as Markdown and as small PNG files."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.report import Table

DPI = 80
COLOURS, GREYS = 256, 16  # of palettes: enough for shading and digits, in a third of the bytes


@dataclass(frozen=True)
class Item:
    """One figure or table of a document, and ours.

    Attributes
    ----------
    title : str
        Which figure or table it is, and where it stands.
    theirs : str
        What the document's shows, with its numbers.
    name : str
        Of our picture's file, without its ending.
    figure : matplotlib.figure.Figure
    why : str
        What differs and why.
    table : Table, optional
        Numbers, the document's beside ours.
    grey : bool
        Whether the picture has no colours.
    caption : str
        Of the picture in the README; empty where it is not shown there.
    """

    title: str
    theirs: str
    name: str
    figure: Any
    why: str
    table: Table | None = None
    grey: bool = False
    caption: str = ""

    def save(self, folder: Path) -> None:
        """Write the picture, and let go of it."""
        import matplotlib.pyplot as plt
        from PIL import Image

        with io.BytesIO() as drawn:
            self.figure.savefig(drawn, format="png", dpi=DPI)
            image = Image.open(drawn).convert("RGB")
        # Of the methods this one keeps the colour of the fewest pixels: markers and their legend.
        rare = Image.Quantize.MAXCOVERAGE
        image = image.quantize(GREYS if self.grey else COLOURS, method=rare, kmeans=4)
        image.save(folder / f"{self.name}.png", optimize=True)
        plt.close(self.figure)

    def markdown(self, pictures: str) -> str:
        """The item with the document's on the left and ours on the right."""
        shown = f"![{self.title}: ours]({pictures}/{self.name}.png)"
        theirs = self.theirs.replace("|", r"\|")
        beside = Table(("the document", "ours"), [(theirs, shown)]).markdown()
        parts = [f"### {self.title}", beside, self.why]
        return "\n\n".join(parts + ([self.table.markdown()] if self.table else []))


@dataclass(frozen=True)
class Section:
    """A document, or what goes beyond them."""

    title: str
    items: list[Item]

    def markdown(self, pictures: str) -> str:
        """Heading and items."""
        return "\n\n".join([f"## {self.title}", *(item.markdown(pictures) for item in self.items)])


def page(sections: Iterable[Section], pictures: str, made_of: str) -> str:
    """The whole gallery."""
    head = (
        "# Gallery\n\nEach figure and table of the five documents that this package implements, "
        "beside ours. Made by `python -m bench.gallery --save`, numbers and all, from "
        f"{made_of}. What a document states is quoted; its pictures are its own, and are "
        "described."
    )
    return "\n\n".join([head, *(section.markdown(pictures) for section in sections)]) + "\n"


def excerpt(sections: Iterable[Section], pictures: str, whole: str) -> str:
    """What the README shows of it."""
    items = [item for section in sections for item in section.items if item.caption]
    shown = [f"![{item.title}]({pictures}/{item.name}.png)\n\n{item.caption}" for item in items]
    last = f"[The gallery]({whole}) has each figure and table of the documents beside ours."
    return "\n\n".join([*shown, last])


def percent(share: float) -> str:
    """A share, to one decimal."""
    return f"{100 * share:.1f} %"


def numbers(values: Iterable[float], digits: int = 2) -> str:
    """Numbers in a row."""
    return ", ".join(f"{round(float(value), digits) + 0.0:.{digits}f}" for value in values)
