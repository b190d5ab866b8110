"""The readers of saved files that the documentation shows read what `save` wrote."""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from samples import blobs

from streamgda import ClassMoments, GaussianNB, QuadraticDiscriminantAnalysis

PAGE = (Path(__file__).parents[2] / "docs/recipes/saving.md").read_text()
PYTHON = next(b for b in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "def read_" in b)
(R,) = re.findall(r"```r\n(.*?)```", PAGE, re.DOTALL)


def test_they_are_short():
    assert max(PYTHON.count("\n"), R.count("\n")) <= 60


@pytest.mark.parametrize("dtype", [float, np.uint8, np.float32])
def test_plain_python(tmp_path, dtype):
    names = {}
    exec(PYTHON.split("\n\n\nhead, arrays")[0], names)
    X, y = blobs()
    for saved in (GaussianNB().fit(X.astype(dtype), y), ClassMoments().update(X.astype(dtype), y)):
        saved.save(tmp_path / "it.npz", offset=3)
        head, arrays = names["read_saved"](tmp_path / "it.npz")
        assert head["attributes"]["offset"] == 3
        expected = np.load(tmp_path / "it.npz")
        for name, numbers in arrays.items():
            assert numbers.tolist() == expected[name].ravel().tolist()
        data = bytearray((tmp_path / "it.npz").read_bytes())
        data[len(data) // 2] ^= 1
        (tmp_path / "it.npz").write_bytes(data)
        with pytest.raises(ValueError, match="is damaged"):
            names["read_saved"](tmp_path / "it.npz")


CHECK = """
found <- sapply(1:3, covariance)
write.table(format(means, digits = 17), quote = FALSE, row.names = FALSE, col.names = FALSE)
write.table(format(t(found), digits = 17), quote = FALSE, row.names = FALSE, col.names = FALSE)
cat(saved$head$kind, saved$head$attributes$offset, count, "\\n")
"""


def test_r(tmp_path):
    if shutil.which("Rscript") is None:
        pytest.skip("R is not installed")
    library = ["Rscript", "-e", "library(jsonlite)"]
    if subprocess.run(library, capture_output=True, check=False).returncode:
        pytest.skip("the package jsonlite of R is not installed")
    X, y = blobs()
    model = QuadraticDiscriminantAnalysis(store_covariance=True, ddof=1).fit(X, y)
    model.save(tmp_path / "model.npz", offset=7)
    (tmp_path / "read.R").write_text(R + CHECK)
    done = subprocess.run(
        ["Rscript", "read.R"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    *rows, last = done.stdout.splitlines()
    means, covariances = np.loadtxt(rows[:3]), np.loadtxt(rows[3:])
    np.testing.assert_allclose(means, model.means_, rtol=1e-15)
    np.testing.assert_allclose(covariances.reshape(3, 4, 4), model.covariance_, rtol=1e-12)
    assert last.split() == ["estimator", "7", *map(str, model.class_count_)]
