"""The command line over stores that are incomplete, damaged, or of other programs."""

import json
import os
import zipfile

import numpy as np
import pytest
import zarr

N_ROWS, D = 1000, 3
RANDOM = np.random.default_rng(0)
Y = RANDOM.integers(0, 2, N_ROWS)
X = RANDOM.normal(size=(N_ROWS, D)) + 2 * Y[:, None]


@pytest.fixture
def rows(tmp_path):
    return write(tmp_path / "rows")


def write(path, rows=X, **options):
    group = zarr.create_group(path, **options)
    group.create_array("X", data=rows, chunks=(100, D))
    group.create_array("y", data=Y, chunks=(200,))
    return path


def refused(ended, *told):
    code, out, err = ended
    assert code == 1, out
    (line,) = [line for line in err.splitlines() if line.startswith("streamgda: ")]
    for text in told:
        assert text in line
    return line


# --- chunks that are not there ----------------------------------------------------------------


# --- rows that cannot be used -----------------------------------------------------------------


# --- info -------------------------------------------------------------------------------------


def test_info_of_files_of_other_programs(command, rows, tmp_path):
    def described(path):
        code, out, err = command("info", path, "--json")
        assert code == 0, err
        return json.loads(out)

    arrays = described(rows)["arrays"]
    assert [(a["name"], a["shape"]) for a in arrays] == [("X", [N_ROWS, D]), ("y", [N_ROWS])]
    zarr.consolidate_metadata(write(tmp_path / "old", zarr_format=2))
    assert described(tmp_path / "old")["arrays"] == arrays
    with zipfile.ZipFile(tmp_path / "packed.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for folder, _, names in os.walk(rows):
            for name in names:
                file = os.path.join(folder, name)
                archive.write(file, os.path.relpath(file, rows))
    assert described(tmp_path / "packed.zip")["arrays"] == arrays
    os.symlink(rows, tmp_path / "link")
    assert described(tmp_path / "link")["arrays"] == arrays


# --- a threshold ------------------------------------------------------------------------------
