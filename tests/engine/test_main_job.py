"""The main job: rows in stores and dask, of several slabs and blocks, give what an array gives.

Every use meets every one of them, on every scheduler of dask and inside of tasks. Labels are in a
store, too, and chunks of rows and labels end at different rows.
"""

import functools
import subprocess
import sys

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import obstore.store
import pandas as pd
import pytest
import zarr
from distributed import worker_client
from grids import pairs
from servers import Server, serving
from stops import slabs_of
from zarr.storage import FsspecStore, ObjectStore

from streamgda import QuadraticDiscriminantAnalysis, accumulate, open_store

N_ROWS, CHUNK, LABEL_CHUNK = 600, 8, 50  # 75 blocks: a round and a part of another
rng = np.random.default_rng(0)
y = rng.integers(0, 3, N_ROWS)
X = (rng.normal(size=(N_ROWS, 4)) + y[:, None]).astype("f4")

# --- containers -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the same rows and labels in stores and files."""
    path = tmp_path_factory.mktemp("main")
    layouts = {
        "v3": {"chunks": (CHUNK, 4)},
        "v2": {"chunks": (CHUNK, 4), "zarr_format": 2},
        "sharded": {"chunks": (CHUNK, 4), "shards": (3 * CHUNK, 4)},
        "tiles": {"chunks": (CHUNK, 3)},
    }
    for name, layout in layouts.items():
        group = zarr.create_group(path / name, zarr_format=layout.pop("zarr_format", 3))
        group.create_array("X", data=X, **layout)
        group.create_array("y", data=y, chunks=(LABEL_CHUNK,))
    frame = pd.DataFrame(X, columns=[*"abcd"]).assign(label=y)
    (path / "parts").mkdir()
    for n in range(5):
        frame[n * 120 : (n + 1) * 120].to_parquet(path / f"parts/{n}.parquet")
    return path


@pytest.fixture(scope="module")
def url(folder):
    server = Server(folder)
    with serving(server):
        yield server.url


def of_store(make, **options):
    """Rows and labels of arrays in the stores that a function makes of folders."""
    return lambda place: tuple(
        zarr.open_array(make(f"{place}/v3/{name}"), mode="r", **options) for name in "Xy"
    )


def from_zarr(name="v3", **options):
    return lambda place: (
        da.from_zarr(f"{place}/{name}/X", **options),
        da.from_zarr(f"{place}/{name}/y", **options),
    )


def computed(place):
    rows, labels = from_zarr()(place)
    return rows.map_blocks(lambda block: block + 0).rechunk((11, 4)), labels + 0


def frame_of_parts(place):
    frame = dd.read_parquet(f"{place}/parts")
    return frame.drop(columns="label"), frame["label"]


STORES = {
    "zarr of a path": lambda place: open_store(f"{place}/v3", X="X", y="y"),
    "zarr in version 2": lambda place: tuple(
        zarr.open_array(f"{place}/v2/{name}", mode="r") for name in "Xy"
    ),
    "zarr of obstore": of_store(
        lambda path: ObjectStore(obstore.store.LocalStore(path), read_only=True)
    ),
}
REMOTE = {
    "zarr of fsspec": of_store(lambda url: FsspecStore.from_url(url, read_only=True)),
    "zarr of obstore": of_store(
        lambda url: ObjectStore(
            obstore.store.HTTPStore(url, client_options={"allow_http": True}), read_only=True
        )
    ),
    "dask": from_zarr(),
}
DASK = {
    "from_zarr": from_zarr(),
    "from_zarr of an array": lambda place: tuple(
        da.from_zarr(zarr.open_array(f"{place}/v3/{name}", mode="r")) for name in "Xy"
    ),
    "from_zarr in version 2": from_zarr("v2"),
    "from_zarr in shards": from_zarr("sharded"),
    "from_zarr in tiles": from_zarr("tiles"),
    "from_zarr of a component": lambda place: (
        da.from_zarr(f"{place}/v3", component="X"),
        da.from_zarr(f"{place}/v3", component="y"),
    ),
    "from_zarr of obstore": lambda place: tuple(
        map(da.from_zarr, STORES["zarr of obstore"](place))
    ),
    "uneven blocks": lambda place: (
        da.from_array(X, ((1, 299, 100, 0, 200), 4)),
        from_zarr()(place)[1],
    ),
    "computed blocks": computed,
    "persisted blocks": lambda place: tuple(lazy.persist() for lazy in computed(place)),
    "frame of Parquet": frame_of_parts,
}

# --- uses -----------------------------------------------------------------------------------------


def whole(values):
    """Scores as an array, in whatever they came."""
    values = values.compute() if hasattr(values, "compute") else values
    return np.asarray(values[:] if hasattr(values, "store") else values)


def accumulated(rows, labels, place):
    moments = accumulate(rows, labels)
    parts = moments.class_count, moments.means, moments.covariance()
    return np.concatenate([np.ravel(part) for part in parts])


def fitted(rows, labels, place):
    return QuadraticDiscriminantAnalysis().fit(rows, labels).moments_.means


def partly_fitted(rows, labels, place):
    first = QuadraticDiscriminantAnalysis().partial_fit(X[:300], y[:300], classes=[0, 1, 2])
    return first.partial_fit(rows, labels).moments_.means


@functools.cache
def model():
    return QuadraticDiscriminantAnalysis().fit(X, y)


def predicted(rows, labels, place):
    return whole(model().predict(rows))


def written(rows, labels, place):
    if hasattr(rows, "to_dask_array"):
        rows = rows.to_dask_array().compute_chunk_sizes()
    return whole(model().predict(rows, out=place))


def scored(rows, labels, place):
    return np.array(model().score(rows, labels))


USES = [accumulated, fitted, partly_fitted, predicted, written, scored]


def check(use, make, source, place):
    """Compare a use of rows in a container with that of an array."""
    with slabs_of(X[:100].nbytes):
        found = use(*make(source), place)
    np.testing.assert_allclose(found, use(X, y, place.with_name("expected.zarr")), rtol=1e-9)


# The model of an array has no names of features, as frames and tables have.
pytestmark = pytest.mark.filterwarnings("ignore:X has feature names")
every_use = pytest.mark.parametrize("use", USES, ids=[use.__name__ for use in USES])


@every_use
@pytest.mark.parametrize("name", [*STORES, *DASK])
def test_containers(folder, tmp_path, name, use):
    make = (STORES | DASK)[name]
    check(use, make, folder, tmp_path / "found.zarr")


@every_use
@pytest.mark.parametrize("name", REMOTE)
def test_remote_stores(url, tmp_path, name, use):
    check(use, REMOTE[name], url, tmp_path / "found.zarr")


# --- schedulers and tasks -------------------------------------------------------------------------


def within_worker_client(function, *arguments):
    with worker_client():
        return function(*arguments)


def submitted(client, function, *arguments):
    return client.submit(function, *arguments, pure=False).result()


def delayed(client, function, *arguments):
    return dask.delayed(function)(*arguments).compute()


def computed_by_name(name):
    def run(client, function, *arguments):
        with dask.config.set(scheduler=name):
            return function(*arguments)

    return run


CONTEXTS = {
    "threads": computed_by_name("threads"),
    "synchronous": computed_by_name("synchronous"),
    "distributed": lambda client, function, *arguments: function(*arguments),
    "submit": submitted,
    "delayed": delayed,
    "worker_client": lambda client, *all_: submitted(client, within_worker_client, *all_),
}


@pairs(
    "context, name, use",
    CONTEXTS,
    ["from_zarr", "computed blocks", "frame of Parquet", "zarr"],
    [use.__name__ for use in USES],
)
def test_schedulers_and_tasks(client, folder, tmp_path, context, name, use):
    make = DASK.get(name, STORES["zarr of a path"])
    CONTEXTS[context](client, check, globals()[use], make, folder, tmp_path / "found.zarr")


@every_use
def test_tasks_of_dask_on_its_own_threads(folder, tmp_path, use):
    task = dask.delayed(check)(use, from_zarr(), folder, tmp_path / "found.zarr")
    task.compute(scheduler="threads")


def test_as_many_tasks_as_threads_that_learn_from_dask(client, folder):
    learn = dask.delayed(lambda: accumulate(*from_zarr()(folder)).class_count, pure=False)
    futures = client.compute([learn() for _ in range(6)])
    for found in client.gather(futures):
        np.testing.assert_array_equal(found, np.bincount(y))


# --- at size --------------------------------------------------------------------------------------

DASK_OVER_ZARR = """
import dask.array as da, numpy as np, zarr
from streamgda import LinearDiscriminantAnalysis, accumulate

rng = np.random.default_rng(0)
n, block = 2_000_000, 80_000
X = zarr.create_array("rows.zarr/X", shape=(n, 64), chunks=(8_000, 64), dtype="f4")
y = zarr.create_array("rows.zarr/y", shape=(n,), chunks=(8_000,), dtype="i8")
for start in range(0, n, block):
    labels = rng.integers(0, 10, block)
    rows = rng.standard_normal((block, 64), dtype="f4") + labels[:, None]
    X[start : start + block], y[start : start + block] = rows, labels

X_lazy, y_lazy = da.from_zarr("rows.zarr/X"), da.from_zarr("rows.zarr/y")
assert accumulate(X_lazy, y_lazy).class_count.sum() == n
lda = LinearDiscriminantAnalysis("lsqr").fit(X_lazy, y_lazy)
assert (lda.predict(X_lazy) == y_lazy).mean().compute() > 0.99
"""


@pytest.mark.soak
def test_the_lines_of_the_readme_at_a_size_of_several_parts(tmp_path):
    subprocess.run([sys.executable, "-c", DASK_OVER_ZARR], cwd=tmp_path, check=True)
