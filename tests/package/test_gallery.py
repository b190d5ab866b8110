"""The gallery is built end to end, and contains what the documents name."""

import os
import re
import warnings
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from streamgda import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from streamgda.datasets import load_mnist

plt = pytest.importorskip("matplotlib.pyplot")
Image = pytest.importorskip("PIL.Image")

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)#]+)\)")
MOST_BYTES = 2_000_000
GENERATED = ROOT / "docs" / "generated"
DOCS = {p for p in (ROOT / "docs").rglob("*.md") if GENERATED not in p.parents}


@pytest.fixture
def gallery(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    plt.close("all")  # those that other tests have left
    yield lambda name: import_module(f"bench.gallery.{name}")
    plt.close("all")


def linked(text, folder):
    """Files that a page names."""
    return [folder / name for name in LINK.findall(text) if "://" not in name]


def test_a_section_has_pictures_with_their_text(gallery, tmp_path, monkeypatch):
    program, page = gallery("__main__"), gallery("page")
    monkeypatch.setattr(page, "DPI", 20)
    monkeypatch.setattr(program, "SECTIONS", ("document_003",))
    sections = program.made(gallery("material").stand_in(), tmp_path)
    text = page.page(sections, "pictures", "a stand-in")
    drawn = {path.name for path in tmp_path.iterdir()}
    assert {path.name for path in linked(text, tmp_path)} == drawn
    assert drawn


@pytest.mark.slow
@pytest.mark.mnist
@pytest.mark.timeout(1800)
def test_one_command_makes_the_committed_page_its_pictures_and_an_excerpt(gallery, tmp_path):
    program = gallery("__main__")
    try:
        material = gallery("material").real()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    guide, pictures = tmp_path / program.EXCERPT, tmp_path / program.PICTURES
    guide.parent.mkdir(parents=True)
    guide.write_text((ROOT / program.EXCERPT).read_text())
    pictures.mkdir(parents=True)
    (pictures / "of-old.png").touch()
    program.save(material, tmp_path)
    page = (tmp_path / program.PAGE).read_text()
    assert page == (ROOT / program.PAGE).read_text()
    assert guide.read_text() == (ROOT / program.EXCERPT).read_text()
    made = set(pictures.iterdir())
    assert set(linked(page, tmp_path / "bench")) == made
    for picture in made:
        images = [
            np.asarray(Image.open(file).convert("RGB").reduce(8), float)
            for file in (picture, ROOT / program.PICTURES / picture.name)
        ]
        assert np.abs(images[0] - images[1]).mean() < 1  # of 255: palettes and fonts differ a bit
    named = [file.resolve() for file in linked(guide.read_text(), guide.parent)]
    shown = {file for file in named if file.suffix == ".png"}
    assert 2 <= len(shown) <= 4
    assert shown <= made
    assert not plt.get_fignums()
    for number in range(5):
        assert f"(00{number})" in page or f"## 00{number}:" in page
    assert "nan" not in re.findall(r"[a-z]+", page.lower())
    assert not re.findall(r"[{}]", page)
    for table in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        widths = {len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}
        assert len(widths) == 1, table


RAW = "https://raw.githubusercontent.com/streamgda/streamgda/main/"  # for the package index


def test_the_picture_of_the_readme_is_there():
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", (ROOT / "README.md").read_text())
    (picture,) = (name for name in pictures if not name.startswith("https://img.shields.io/"))
    assert picture.startswith(RAW)
    assert (ROOT / picture.removeprefix(RAW)).exists()


PAGES = sorted(["README.md", "bench/GALLERY.md", *(str(p.relative_to(ROOT)) for p in DOCS)])


@pytest.mark.parametrize("page", PAGES)
def test_files_that_a_page_names_are_there(page):
    path = ROOT / page
    named = [
        file for file in linked(path.read_text(), path.parent) if GENERATED.name not in file.parts
    ]
    assert [file for file in named if not file.exists()] == []


def test_pictures_are_small_and_all_shown():
    pictures = set((ROOT / "bench" / "pictures").iterdir())
    assert pictures == set(linked((ROOT / "bench/GALLERY.md").read_text(), ROOT / "bench"))
    assert sum(picture.stat().st_size for picture in pictures) < MOST_BYTES


def test_without_its_data_nothing_is_saved(gallery, monkeypatch, capsys):
    monkeypatch.delenv("STREAMGDA_MNIST", raising=False)
    for arguments, said in ((["--save"], "STREAMGDA_MNIST"), (["--quick", "--save"], "few rows")):
        monkeypatch.setattr("sys.argv", ["gallery", *arguments])
        with pytest.raises(SystemExit):
            gallery("__main__").main()
        assert said in capsys.readouterr().err


def test_moments_of_given_gaussians_are_theirs(gallery):
    priors, means = [0.7, 0.3], [[1.0, 2, 3], [-1, 0, 5]]
    root = np.random.default_rng(0).normal(size=(2, 3, 3))
    covariances = root @ root.transpose(0, 2, 1) + np.eye(3)
    moments = gallery("material").exactly(priors, means, covariances)
    np.testing.assert_allclose(moments.class_count, priors)
    np.testing.assert_allclose(moments.means, means)
    np.testing.assert_allclose(moments.covariance(), covariances)
    model = QuadraticDiscriminantAnalysis.from_moments(moments)
    np.testing.assert_allclose(model.priors_, priors)


@pytest.mark.slow
@pytest.mark.mnist
@pytest.mark.skipif("STREAMGDA_MNIST" not in os.environ, reason="STREAMGDA_MNIST names no folder")
def test_the_table_of_document_001_is_that_of_densities_that_vanish(gallery):
    document = gallery("document_001")
    X, y, test, truth = load_mnist(os.environ["STREAMGDA_MNIST"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on pixels that are black in all images
        lda = LinearDiscriminantAnalysis().fit(X, y)
    assert lda.score(test, truth) >= 0.873
    densities = document.Densities(lda).densities(test)
    predicted = densities.argmax(axis=1)
    assert (predicted[densities.max(axis=1) == 0] == 0).all()
    confusion = np.zeros((10, 10))
    np.add.at(confusion, (truth, predicted), 1)
    shares = confusion / confusion.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(shares, document.FIGURE_3, rtol=0, atol=0.005)
    assert (predicted == truth).mean() == pytest.approx(document.ACCURACY, abs=0.006)
