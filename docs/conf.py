"""Configuration of the documentation: ``sphinx-build -W --keep-going docs docs/_build/html``.

Nothing is fetched while it is built or read: formulas become MathML, which browsers draw, and
there is no inventory of other projects. ``STREAMGDA_EXAMPLES=small`` runs the examples on few rows.
"""

import re
import subprocess
import sys
from pathlib import Path

import latex2mathml.converter
from docutils.nodes import SkipNode
from sphinx.application import Sphinx

import streamgda

HERE = Path(__file__).parent
GENERATED = HERE / "generated"

project = "streamgda"
author = "The streamgda developers"
version = release = streamgda.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "generated/**/*.py", "generated/**/*.ipynb", "generated/commands.md"]
templates_path = ["_templates"]
default_role = "literal"
maximum_signature_line_length = 80
toc_object_entries_show_parents = "hide"

autodoc_typehints = "none"  # The sections of numpydoc give the types.
autosummary_generate_overwrite = True
numpydoc_show_class_members = False  # The members follow in full.

myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "generated/examples",
    "filename_pattern": r"\.py$",
    "capture_repr": ("_repr_html_",),  # Axes have a representation that nobody reads.
    "image_srcset": ["2x"],
    "doc_module": ("streamgda",),
    "reference_url": {"streamgda": None},
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,
}

html_math_renderer = "mathml"
html_theme = "pydata_sphinx_theme"
html_title = "streamgda"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": f"streamgda {version}"},
    "icon_links": [
        {
            "name": "Repository",
            "url": "https://github.com/streamgda/streamgda",
            "icon": "fa-brands fa-github",
        }
    ],
    "header_links_before_dropdown": 6,
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
}
ALONE = (
    "index",
    "start",
    "concepts",
    "commands",
    "mathematics",
    "differences",
    "troubleshooting",
    "platforms",
)
html_sidebars = {page: [] for page in ALONE}  # No page lies below these.


def join_pages(app: Sphinx, page: str, source: list[str]) -> None:
    """Add to a page what GitHub would show as code: included texts, pictures, a tree of its links.

    A comment ``<!-- include PATH -->`` stands where a text is included, and a comment
    ``<!-- picture EXAMPLE NUMBER: CAPTION -->`` where the picture of an example is. The list items
    of an index that begin with a link are its tree.
    """

    def picture(match: re.Match[str]) -> str:
        example, number, caption = match[1], match[2], " ".join(match[3].split())
        path = f"/generated/examples/images/sphx_glr_{example}_00{number}_2_00x.png"
        return "\n".join([f"```{{figure}} {path}", f":alt: {caption}", "", caption, "```"])

    source[0] = re.sub(r"<!-- picture (\w+) (\d): ([^>]+?) -->", picture, source[0])
    source[0] = re.sub(r"<!-- include (\S+) -->", r"```{include} \1\n```", source[0])
    links = re.findall(r"^- \[.+?\]\(([^):#]+)\.(?:md|rst)\)", source[0], re.M)
    if page.endswith("index") and links and not page.startswith(("api", "generated")):
        source[0] += "\n".join(["", "```{toctree}", ":hidden:", "", *links, "```", ""])


def write_commands(app: Sphinx) -> None:
    """Write the reference of the command line from the application itself."""
    GENERATED.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "typer", "streamgda.cli.app", "utils", "docs"]
    written = ["--name", "streamgda", "--output", str(GENERATED / "commands.md")]
    subprocess.run([*command, *written], check=True, stdout=subprocess.DEVNULL)
    page = GENERATED / "commands.md"
    text = page.read_text()
    text = re.sub(r"Example:\n\n\x08\n +(.+)\n", r"**Example**:\n\n```console\n$ \1\n```\n", text)
    page.write_text(text[text.index("\n## ") :])


def skip_inherited(app: Sphinx, what: str, name: str, thing: object, skip: bool, options) -> bool:
    """Leave out members that other packages define, such as those of scikit-learn."""
    for inner in ("__func__", "fget", "func"):  # Class methods and properties wrap a function.
        thing = getattr(thing, inner, thing)
    home = getattr(thing, "__module__", None) or ""
    return skip or not home.startswith("streamgda")


def visit_math(self, node) -> None:
    """Write a formula as MathML."""
    self.body.append(latex2mathml.converter.convert(node.astext()))
    raise SkipNode


def visit_math_block(self, node) -> None:
    """Write a displayed formula as MathML, which scrolls if it is wider than the page."""
    formula = latex2mathml.converter.convert(node.astext(), display="block")
    self.body.append(f'<div class="formula">{formula}</div>')
    raise SkipNode


def setup(app: Sphinx) -> None:
    """Connect the functions above."""
    app.connect("builder-inited", write_commands)
    app.connect("source-read", join_pages)
    app.connect("autodoc-skip-member", skip_inherited)
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
