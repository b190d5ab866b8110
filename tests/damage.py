"""Damage saved files in many ways, and judge what loading makes of each.

The cases change a file of every kind, in a folder or a zip file: bytes, members, JSON values, and
contents with right checksums. Loading gives the original or FormatError, nothing else. Contents
that were changed together with their checksums may also give an object that works: whatever is
done with it raises errors of streamgda only.
"""

from __future__ import annotations

import contextlib
import copy
import json
import random
import tempfile
import time
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.buffer.cpu import Buffer

import streamgda
from streamgda import (
    ClassMoments,
    DriftMonitor,
    GaussianDiscriminantAnalysis,
    GaussianModel,
    GaussianNB,
    GroupedMoments,
    LinearDiscriminantAnalysis,
    SlidingWindow,
    accumulate,
)
from streamgda.engine.accumulate_checkpoint import CheckpointContents
from streamgda.errors import FormatError, SourceNotFoundError, StreamGDAError
from streamgda.models.model import RowModel
from streamgda.models.principal_components import PrincipalComponents
from streamgda.models.ridge import RidgeModel
from streamgda.moments import Moments
from streamgda.storage import format as storage_format
from streamgda.storage.saved import state_of

GOLDEN = Path(__file__).with_name("golden")
KINDS = (
    *("bernoulli", "drift", "estimator", "grouped", "linear scores", "model", "moments"),
    *("pairwise", "principal components", "ridge", "window"),
)
LOADERS = dict.fromkeys(KINDS, streamgda.load) | {"checkpoint": CheckpointContents.load}
LONGEST = 60.0  # seconds of the processor for a case, which may compile kernels
NASTY = [
    *(None, True, False, 0, 1, -1, 2, 255, 2**31, 2**53, 2**63, -(2**63), 10**30, 10**400),
    *(0.5, -0.0, 1e308, 1e-308, float("nan"), float("inf"), -float("inf")),
    *("", "x", "a" * 1000, "\0", "\ud800", "..", "../count", "/dev/zero", "full", "diag"),
    *("<f8", "|O", "|V8", "<i8", "|S9", "<U2000000000", "<f16", "<M8", "<M8[Y]", "f4,i8", "|b1"),
    *("os.system", "GaussianNB", "BernoulliNB", "numcodecs.pickle", "group", "zstd", "balanced"),
    *([], [[]], [0], [1], [3, 3], [2**40, 2**40], [-1], ["b", "a"], [None], [1e400], [0.5, 0.5]),
    *({}, {"name": "zstd"}, {"a": [{}]}, [[0, 1], [1, 0]]),
]
DTYPES = ("f8", "f4", "f2", "i8", "i4", "u8", "u1", "b1")
Files = dict[str, bytes]
Uses = Iterator[Callable[[], Any]]


# --- what is damaged --------------------------------------------------------------------------


@dataclass
class Subject:
    """A saved object: its kind, and what its file holds.

    Attributes
    ----------
    name, kind : str
    attributes, arrays : dict
        Results of `storage_format.read`.
    """

    name: str
    kind: str
    attributes: dict[str, Any]
    arrays: dict[str, np.ndarray]

    def written(self, attributes: Any = None, arrays: Any = None) -> Files:
        """Return the files of a folder with other attributes or arrays."""
        held: dict[str, Any] = {}
        attributes = self.attributes if attributes is None else attributes
        arrays = self.arrays if arrays is None else arrays
        storage_format.write(zarr.storage.MemoryStore(held), self.kind, attributes, arrays)
        return {key: value.to_bytes() for key, value in held.items()}

    @cached_property
    def files(self) -> Files:
        return self.written()

    @cached_property
    def twins(self) -> list[Files]:
        """Other valid files: one with the same arrays, and one with arrays of the same shapes."""
        rolled = {name: np.roll(array, 1) + 1 for name, array in self.arrays.items()}
        return [self.written(self.attributes | {"offset": 1}), self.written(None, rolled)]

    @cached_property
    def meaning(self) -> str:
        return meaning(self.load(as_store(self.files)), as_store(self.files), self.kind)

    def load(self, store: Any) -> Any:
        return LOADERS[self.kind](store)


def as_store(files: Files) -> Any:
    return zarr.storage.MemoryStore({k: Buffer.from_bytes(v) for k, v in files.items()})


def subjects() -> dict[str, Subject]:
    """Return a subject for each of the newest golden files, and some that follow from them."""
    found = {}
    for folder in (f"version{storage_format.VERSION}", "groups", "heads"):
        for file in sorted((GOLDEN / folder).glob("*.zip")):
            found[file.stem] = Subject(file.stem, *storage_format.read(file))
    qda, batches = found["qda"], found["pass"]
    parts = {name: value for name, value in qda.attributes.items() if name != "model"}
    arrays = {name: a for name, a in qda.arrays.items() if not name.startswith("model/")}
    seen = {"seen": {"slab_rows": 6, "columns": [1], "samples": [[0, 1, 5]]}}
    pooled = ClassMoments.load(as_store(found["moments-exact-diag"].files)).reduce("tied_spherical")
    rows, labels = np.array([[0.0, 5.0], [1.0, 3.0], [4.0, 2.0], [6.0, 9.0]]), [0, 0, 1, 1]
    weighted = GaussianNB().partial_fit(rows, labels, [0, 1, 2], [0.5, 1, 0, 2])
    tied = GaussianDiscriminantAnalysis.from_parameters(
        [[0.0, 1.0, 7.0], [2.0, 0.0, 7.0]],
        np.diag([1.0, 2.0, 0.0]),
        [0.25, 0.75],
        ["a", "b"],
        covariance_type="tied",
    )
    scores = LinearDiscriminantAnalysis.from_parameters([[1.0, 2.0]], [0.5], [0, 1])
    made = {"weighted": weighted, "given-tied": tied, "given-scores": scores}
    found |= {name: Subject(name, "estimator", *state_of(one)) for name, one in made.items()}
    return found | {
        "no-model": Subject("no-model", "estimator", parts, arrays),
        "slabs": Subject("slabs", "checkpoint", batches.attributes | seen, batches.arrays),
        "moments-pooled": Subject("moments-pooled", "moments", *state_of(pooled)),
    }


def meaning(loaded: Any, store: Any, kind: str) -> str:
    """Return the content of a loaded object and of its file, in one text."""
    contents = [state_of(loaded), storage_format.read(store, kind)[1:]]
    plain = [
        [attributes, {n: [a.dtype.str, a.shape, a.tobytes().hex()] for n, a in arrays.items()}]
        for attributes, arrays in contents
    ]
    return json.dumps(plain, sort_keys=True)


# --- damage with wrong checksums: each changes some files, by their keys ----------------------


def flip(files: Files, chance: random.Random, subject: Subject) -> None:
    key = chance.choice(sorted(files))
    data = bytearray(files[key])
    for _ in range(chance.choice([1, 1, 1, 4]) if data else 0):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    files[key] = bytes(data)


def cut(files: Files, chance: random.Random, subject: Subject) -> None:
    key = chance.choice(sorted(files))
    files[key] = files[key][: chance.randrange(len(files[key]) + 1)]


def lengthen(files: Files, chance: random.Random, subject: Subject) -> None:
    files[chance.choice(sorted(files))] += chance.randbytes(chance.choice([1, 8, 100]))


def overwrite(files: Files, chance: random.Random, subject: Subject) -> None:
    noise = [b"", b"null", b"[]", b"{}", b"[" * 10**5, b"1" * 10**5, b"\xff\xfe"]
    files[chance.choice(sorted(files))] = chance.choice([*noise, chance.randbytes(64)])


def remove(files: Files, chance: random.Random, subject: Subject) -> None:
    del files[chance.choice(sorted(files))]


def swap(files: Files, chance: random.Random, subject: Subject) -> None:
    a, b = chance.choice(sorted(files)), chance.choice(sorted(files))
    files[a], files[b] = files[b], files[a]


def duplicate(files: Files, chance: random.Random, subject: Subject) -> None:
    files[chance.choice(["more", "x/zarr.json", *files])] = files[chance.choice(sorted(files))]


def exchange(files: Files, chance: random.Random, subject: Subject) -> None:
    """Take some members of another valid file."""
    other = chance.choice(subject.twins)
    for key in chance.sample(sorted(other), chance.choice([1, 1, chance.randint(1, len(other))])):
        files[key] = other[key]


def edit(files: Files, chance: random.Random, subject: Subject) -> None:
    key = chance.choice([key for key in sorted(files) if key.endswith("zarr.json")])
    try:
        tree = json.loads(files[key])
    except ValueError:  # it was damaged before
        return
    change_json(tree, chance)
    files[key] = json.dumps(tree).encode()


def change_json(tree: Any, chance: random.Random) -> None:
    """Change one place of a JSON tree: remove, append, copy another place or write anything."""
    places = list(walk(tree)) or [({"": None}, "")]
    holder, at = chance.choice(places)
    change = chance.randrange(5)
    if change == 0:
        del holder[at]
    elif change == 1 and isinstance(holder, list):
        holder.append(copy.deepcopy(chance.choice(NASTY)))
    elif change == 2:
        other, there = chance.choice(places)
        holder[at] = copy.deepcopy(other[there])
    else:
        holder[at] = copy.deepcopy(chance.choice(NASTY))


def walk(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each place of a JSON tree, as its container and its key or index there."""
    if isinstance(tree, dict | list):
        for at in list(tree) if isinstance(tree, dict) else range(len(tree)):
            yield tree, at
            yield from walk(tree[at])


DAMAGES = (flip, cut, lengthen, overwrite, remove, swap, duplicate, exchange, exchange, edit)


# --- damage with right checksums: each returns files ------------------------------------------


def other_attributes(chance: random.Random, subject: Subject) -> Files:
    attributes = copy.deepcopy(subject.attributes)
    for _ in range(chance.choice([1, 1, 1, 2])):
        change_json(attributes, chance)
    return subject.written(attributes)


def other_description(chance: random.Random, subject: Subject) -> Files:
    """Change what the format says about the arrays, and seal it again."""
    files = dict(subject.files)
    tree = json.loads(files["zarr.json"])
    change_json(tree["attributes"][storage_format.FORMAT], chance)
    return sealed(files, tree)


def sealed(files: Files, tree: Any) -> Files:
    """Return files with the right checksums for a changed description."""
    head = tree["attributes"].get(storage_format.FORMAT)
    if not isinstance(head, dict):
        return files | {"zarr.json": json.dumps(tree).encode()}
    head.pop("checksum", None)
    head["checksum"] = storage_format.checksum_of(head)
    changed = {"zarr.json": json.dumps(tree).encode()}
    for key, value in files.items():
        if key.endswith("/zarr.json"):
            node = json.loads(value)
            if node["node_type"] == "array":
                node["attributes"] = dict.fromkeys(node["attributes"], head["checksum"])
            changed[key] = json.dumps(node).encode()
    return files | changed


def other_values(chance: random.Random, subject: Subject) -> Files:
    name = chance.choice(sorted(subject.arrays))
    array = subject.arrays[name].copy()
    if array.dtype.kind == "f":
        values = [0, 1, -1, 7, np.nan, np.inf, -np.inf, 1e308, -1e308, 1e-320, 2.0**53, 1e154]
    else:
        limits = np.iinfo(array.dtype)
        values = [0, 1, 7, 2**31, 2**53, limits.min, limits.max]
    if array.size:
        where = chance.choice([chance.randrange(array.size), slice(None), slice(0, None, 2)])
        array.reshape(-1)[where] = chance.choice(values)
        if chance.random() < 0.2:
            array = -array
    return subject.written(None, subject.arrays | {name: array})


def other_form(chance: random.Random, subject: Subject) -> Files:
    name = chance.choice(sorted(subject.arrays))
    array = subject.arrays[name]
    with np.errstate(all="ignore"):
        form = chance.choice(
            [
                lambda: array.astype(chance.choice(DTYPES)),
                lambda: array.astype(chance.choice(DTYPES)),
                lambda: array.T,
                lambda: array[None],
                lambda: array.reshape(-1),
                lambda: array[..., :-1] if array.ndim else array,
                lambda: array[:-1] if array.ndim else array,
                lambda: array[:0] if array.ndim else array,
                lambda: array[..., :0] if array.ndim else array,
                lambda: np.concatenate([array, array], axis=-1) if array.ndim else array,
                lambda: np.zeros((0, chance.choice([2**20, 2**40, 2**59]))),
                lambda: np.array(1.0),
            ]
        )
        return subject.written(None, subject.arrays | {name: form()})


def other_names(chance: random.Random, subject: Subject) -> Files:
    arrays = dict(subject.arrays)
    name = chance.choice(sorted(arrays))
    change = chance.randrange(3)
    if change == 0:
        del arrays[name]
    elif change == 1:
        arrays[chance.choice(["more", "0/more", "model/more", f"{name}2"])] = arrays[name]
    else:
        other = chance.choice(sorted(arrays))
        arrays[name], arrays[other] = arrays[other], arrays[name]
    return subject.written(None, arrays)


SEALED = (other_attributes, other_attributes, other_description)
SEALED_ARRAYS = (other_values, other_values, other_form, other_names)


# --- uses, which work or raise errors of streamgda ---------------------------------------------


def use(loaded: Any) -> None:
    """Save and use an object, and let pass errors that are not of streamgda."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded.save(zarr.storage.MemoryStore())
        for call in list(uses_of(loaded)):
            with contextlib.suppress(StreamGDAError):
                call()


def uses_of(loaded: Any) -> Uses:
    if isinstance(loaded, CheckpointContents):
        yield lambda: resume(loaded)
        for moments in loaded.moments.values():
            yield from uses_of_moments(moments)
    elif isinstance(loaded, GroupedMoments):
        yield from uses_of_groups(loaded)
    elif isinstance(loaded, SlidingWindow):
        yield from uses_of_window(loaded)
    elif isinstance(loaded, Moments):
        yield from uses_of_moments(loaded)
    elif isinstance(loaded, RowModel):
        yield from uses_of_model(loaded)
    elif isinstance(loaded, DriftMonitor):
        rows, labels = rows_and_labels(loaded.reference.n_features, loaded.reference.classes)
        yield lambda: (repr(loaded), loaded.can_alarm_from, loaded.history)
        yield lambda: loaded.update(rows, labels)
    else:
        yield from uses_of_estimator(loaded)


def resume(contents: CheckpointContents) -> None:
    """Resume the pass of `golden/make.py` that has left these contents."""
    spec = spec_from_file_location("make", GOLDEN / "make.py")
    make = module_from_spec(spec)
    spec.loader.exec_module(make)
    data = make.rows()
    on_dask = contents.description.get("read by") == "dask"
    with tempfile.TemporaryDirectory() as folder:
        contents.save(f"{folder}/it.zip")
        batches = make.delayed(data) if on_dask else make.batches(data)
        accumulate(batches, checkpoint=f"{folder}/it.zip")


def rows_and_labels(n_features: int | None, classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return six rows of zeros and ones, and labels for them."""
    rows = np.arange(6 * min(64, n_features or 1)).reshape(6, -1) % 3 == 0
    return rows * 1.0, np.resize(classes, 6) if classes.size else np.arange(6)


def uses_of_moments(moments: Any) -> Uses:
    rows = rows_and_labels(moments.n_features, moments.classes)
    yield lambda: moments + moments
    if isinstance(moments, ClassMoments):
        yield lambda: moments + moments * 0.5
        yield lambda: moments + moments - moments
        yield lambda: moments.reduce("tied_spherical")
    else:
        yield moments.to_moments
    yield moments.covariance
    yield lambda: (moments.means, moments.class_count, repr(moments))
    yield lambda: moments.copy().update(*rows)
    yield lambda: (moments + moments).save(zarr.storage.MemoryStore())


def uses_of_groups(grouped: GroupedMoments) -> Uses:
    rows, y = rows_and_labels(grouped.n_features, grouped.classes)
    for group in grouped:
        yield lambda group=group: grouped.without(group)
        yield from uses_of_moments(grouped[group])
    yield lambda: (grouped.counts, repr(grouped), grouped + grouped - grouped)
    yield lambda: grouped.roll_up(str)
    yield lambda: grouped.copy().update(rows, y, np.arange(6) // 2)
    yield from uses_of_moments(grouped.total())


def uses_of_window(window: SlidingWindow) -> Uses:
    yield from uses_of_moments(window.moments)
    for _ in range(4):
        yield lambda: window.append(window.moments)
    yield lambda: window.save(zarr.storage.MemoryStore())


def uses_of_model(model: Any) -> Uses:
    rows, _ = rows_and_labels(model.n_features, model.classes)
    methods = "predict posterior log_posterior joint_log_likelihood log_density relative_scores"
    if isinstance(model, PrincipalComponents):
        methods = "transform residual log_density"
    elif isinstance(model, RidgeModel):
        methods = "relative_scores predict" if model.classes.size > 1 else "targets"
    for method in methods.split():
        yield lambda method=method: getattr(model, method)(rows)
    if isinstance(model, GaussianModel):
        yield lambda: (model.mahalanobis(rows), model.p_values(rows))
    if model.classes.size == 2:
        yield lambda: model.log_odds(rows)


def uses_of_estimator(estimator: Any) -> Uses:
    classes = getattr(estimator, "classes_", np.arange(2.0))  # those without have targets, or none
    rows, labels = rows_and_labels(estimator.n_features_in_, classes)
    methods = "predict predict_proba predict_log_proba decision_function score_samples transform"
    for method in methods.split():
        if hasattr(estimator, method):
            yield lambda method=method: getattr(estimator, method)(rows)
    if hasattr(estimator, "sample"):
        yield lambda: estimator.sample(3, 0)
    if hasattr(estimator, "moments_"):
        yield from uses_of_moments(estimator.moments_)
    if hasattr(estimator, "partial_fit"):
        yield lambda: estimator.partial_fit(rows, labels)
    yield lambda: repr(estimator)
    yield lambda: estimator.fit(rows, labels)


# --- judgement --------------------------------------------------------------------------------


def placed(files: Files, path: Path, chance: random.Random) -> Path:
    """Write files to a folder or to a zip file, whose bytes may be damaged too."""
    if path.suffix != ".zip":
        for key, value in files.items():
            file = path / key
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(value)
        return path
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w") as archive:
        warnings.simplefilter("ignore")  # of members that are repeated
        for key, value in files.items():
            archive.writestr(key, value)
        if chance.random() < 0.02:
            archive.writestr(*chance.choice([*files.items()]))
    return path


def one_case(subject: Subject, number: int, folder: Path) -> str:
    """Damage a subject once; return what became of it. Anything unexpected is raised."""
    chance = random.Random(f"{subject.name} {number}")
    path = folder / ("it.zip" if chance.random() < 0.5 else "it")
    right = chance.random() < 0.5
    if right:
        kinds = SEALED + (SEALED_ARRAYS if subject.arrays else ())
        files = chance.choice(kinds)(chance, subject)
        placed(files, path, random.Random(4))
    else:
        files = dict(subject.files)
        if path.suffix == ".zip" and chance.random() < 0.4:
            placed(files, path, chance)
            whole = {"zip": path.read_bytes()}
            chance.choice([flip, flip, cut, lengthen])(whole, chance, subject)
            path.write_bytes(whole["zip"])
        else:
            for _ in range(chance.choice([1, 1, 2])):
                if "zarr.json" in files and files["zarr.json"] == subject.files["zarr.json"]:
                    chance.choice(DAMAGES)(files, chance, subject)
            placed(files, path, chance)
    if any(twin.items() <= files.items() for twin in subject.twins):
        return "other file"
    try:
        loaded = subject.load(path)
    except (FormatError, SourceNotFoundError) as error:
        if str(path) in str(error):
            return "refused"
        raise
    if meaning(loaded, path, subject.kind) == subject.meaning:
        return "original"
    assert right, "the file loads as something else"
    use(loaded)
    return "works"


def result_of(subject: Subject, number: int) -> tuple[str, str]:
    """Return what became of a case, and the traceback of an unexpected end."""
    started = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        try:
            result = one_case(subject, number, Path(folder))
        except Exception:
            return "FAULT", traceback.format_exc()
    seconds = time.process_time() - started
    return (result, "") if seconds < LONGEST else ("FAULT", f"it took {seconds:.1f} seconds")
