"""Sessions of Icechunk, stores of obstore, and virtual stores: read, and written where they can."""

import pickle

import icechunk
import numpy as np
import obstore
import pytest
import zarr
from obspec_utils.registry import ObjectStoreRegistry
from samples import blobs
from virtualizarr.manifests import ChunkManifest, ManifestArray, ManifestGroup, ManifestStore

from streamgda import GaussianNB, accumulate, load, open_store
from streamgda.errors import SourceError
from streamgda.rows import as_source

X, y = blobs(60)
NB = GaussianNB().fit(X, y)


def fill(store):
    group = zarr.create_group(store)
    group.create_array("X", data=X, chunks=(20, 4), dimension_names=["row", "feature"])
    group.create_array("y", data=y, chunks=(20,), dimension_names=["row"])


def repository(path=None, filled=True):
    kind = icechunk.in_memory_storage() if path is None else icechunk.local_filesystem_storage(path)
    found = icechunk.Repository.create(kind)
    if filled:
        session = found.writable_session("main")
        fill(session.store)
        session.commit("rows")
    return found


@pytest.fixture(scope="module")
def virtual(tmp_path_factory):
    """A store whose chunks are the files of another one."""
    folder = tmp_path_factory.mktemp("virtual")
    fill(folder)
    arrays = {}
    for name, array in zarr.open_group(folder, mode="r").arrays():
        files = [file for file in folder.glob(f"{name}/c/**/*") if file.is_file()]
        keys = [".".join(file.relative_to(folder / name / "c").parts) for file in files]
        chunks = {
            key: {"path": f"file://{file}", "offset": 0, "length": file.stat().st_size}
            for key, file in zip(keys, files, strict=True)
        }
        arrays[name] = ManifestArray(array.metadata, ChunkManifest(chunks))
    registry = ObjectStoreRegistry({"file://": obstore.store.LocalStore()})
    return ManifestStore(ManifestGroup(arrays=arrays), registry=registry)


def session():
    return repository().readonly_session("main")


def object_store():
    store = obstore.store.MemoryStore()
    fill(zarr.storage.ObjectStore(store))
    return store


@pytest.mark.parametrize("kind", ["session", "its store", "obstore", "virtual", "complete"])
def test_reading(kind, virtual):
    store = {
        "session": session,
        "its store": lambda: session().store,
        "obstore": object_store,
        "virtual": lambda: virtual,
        "complete": session,
    }[kind]()
    options = {"missing": "error"} if kind == "complete" else {}
    rows, labels = open_store(store, **options)
    found = accumulate(rows, labels)
    np.testing.assert_array_equal(found.means, accumulate(X, y).means)
    np.testing.assert_array_equal(NB.predict_proba(rows), NB.predict_proba(X))
    np.testing.assert_array_equal(GaussianNB().fit(rows, labels).theta_, NB.theta_)
    with pytest.raises(SourceError, match=r"'Z'") as error:
        open_store(store, "Z")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("make", [lambda: repository(filled=False), obstore.store.MemoryStore])
@pytest.mark.parametrize("what", ["model", "probabilities"])
def test_saving_and_writing(make, what):
    made = make()
    store = made if not hasattr(made, "writable_session") else made.writable_session("main")
    for _ in range(2 if what == "model" else 1):
        NB.save(store) if what == "model" else NB.predict_proba(X, out=store)
    if store is not made:
        store.commit(what)
        store = made.readonly_session("main")
    found = load(store).predict_proba(X) if what == "model" else open_store(store, y=None)[0][:]
    np.testing.assert_array_equal(found, NB.predict_proba(X))


def test_several_arrays_in_a_session():
    made = repository()
    session = made.writable_session("main")
    rows, _ = open_store(session)
    NB.predict(rows, out=zarr.storage.StorePath(session.store, "classes"))
    NB.save(zarr.storage.StorePath(session.store, "model"))
    NB.sample(10, 0, out=zarr.storage.StorePath(session.store, "drawn"))
    session.commit("all of them")
    group = zarr.open_group(made.readonly_session("main").store, mode="r")
    np.testing.assert_array_equal(group["classes"][:], NB.predict(X))
    np.testing.assert_array_equal(load(group["model"]).predict(X), NB.predict(X))
    np.testing.assert_array_equal(group["drawn/X"][:], NB.sample(10, 0)[0])


def writers(store):
    return (
        lambda: NB.save(store),
        lambda: NB.predict(X, out=store),
        lambda: NB.sample(3, out=store),
    )


def test_stores_that_cannot_be_written_are_refused(virtual):
    ended = repository(filled=False).writable_session("main")
    fill(ended.store)
    ended.commit("rows")
    memory = zarr.storage.ObjectStore(obstore.store.MemoryStore(), read_only=True)
    for store in (session(), session().store, ended, memory):
        for write in writers(store):
            with pytest.raises(
                SourceError, match=r"is a read-only .*; open it for writing \(a ses"
            ):
                write()
    for write in writers(virtual):
        with pytest.raises(SourceError, match=r"is a ManifestStore, which refers to other files"):
            write()


def test_nodes_that_exist_are_not_replaced(tmp_path):
    writable = repository().writable_session("main")
    fill(tmp_path / "rows")
    for store in (writable, tmp_path / "rows", object_store()):
        for write in writers(store)[1:]:
            with pytest.raises(SourceError, match=r"^out=.* exists already; choose another path"):
                write()
        with pytest.raises(SourceError, match=r"holds something else than a saved object"):
            NB.save(store)
    np.testing.assert_array_equal(open_store(writable)[0][:], X)


def test_virtual_datasets_are_refused(virtual):
    with pytest.raises(SourceError, match=r"a Dataset of xarray is no store: .* the ManifestStore"):
        open_store(virtual.to_virtual_dataset())


def test_workers_read_what_they_can_find(tmp_path, virtual):
    def shareable(store):
        return as_source(open_store(store)[0]).shareable

    on_disk = repository(str(tmp_path / "repository"))
    rows, _ = open_store(on_disk.readonly_session("main"))
    assert as_source(rows).shareable
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(rows))[:], X)
    assert shareable(virtual)
    # Sessions in memory, or with changes, exist in this process only.
    assert not shareable(session())
    assert not shareable(on_disk.writable_session("main"))
    assert not shareable(object_store())
