"""Folders of compiled kernels: they are found, written where possible, and repaired.

Numba chooses ``NUMBA_CACHE_DIR``, the folder of the sources or the user's cache directory: the
first that it can write to. It replaces each file in one step, but two processes that compile
different signatures of a kernel at once may give both the same file, and files may be damaged.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import stat
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numba
from numba import config, types
from numba.core.compiler_lock import global_compiler_lock
from numba.core.errors import NumbaError

Types = tuple[types.Type, ...]

_IN_TREE = Path(__file__).parent / "__pycache__"


def cached(function: Callable[..., Any], settings: dict[str, Any]) -> Any:
    """Return the kernel of a function, which is kept in a temporary folder if nowhere else."""
    given = config.CACHE_DIR
    try:
        kernel = numba.njit(**settings)(function)
    except RuntimeError:  # no folder can be written
        config.CACHE_DIR = _temporary_folder()
        try:
            kernel = numba.njit(**settings | {"cache": bool(config.CACHE_DIR)})(function)
        finally:
            config.CACHE_DIR = given
    if settings["cache"]:
        _copy_from_others(kernel, given)
    return kernel


def _copy_from_others(kernel: Any, given: str) -> None:
    """Copy the files of a kernel from folders that Numba does not use, as it cannot write there.

    An image has such a folder, which is filled as the image is built, and read-only afterwards.
    """
    used = Path(kernel.stats.cache_path or _IN_TREE)
    for folder in (_IN_TREE, Path(given or used.parent, used.name)):
        for name in _names(folder) if folder != used else ():
            if _is_of(kernel, name) and not (used / name).exists():
                with contextlib.suppress(OSError):  # no space; or another process is faster
                    shutil.copy(folder / name, used)


@cache
def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("*.nb[ic]")]


def _is_of(kernel: Any, name: str) -> bool:
    return f".{kernel.py_func.__qualname__}-" in name


@cache
def _temporary_folder() -> str:
    """Return a folder that only the user can write to, as its files are executed; or ''."""
    try:
        folder = _own_folder() or tempfile.mkdtemp(prefix="streamgda-")
        consequence = f"compiled kernels go to {folder}"
    except OSError:
        folder, consequence = "", "every process compiles the kernels again"
    warnings.warn(
        f"cannot write to the folder of streamgda or to the cache of the user: {consequence}; set "
        "NUMBA_CACHE_DIR to a folder that can be written and lasts",
        RuntimeWarning,
        stacklevel=2,
    )
    return folder


def _own_folder() -> str | None:
    """Return the folder that all processes of the user share; None if others could change it."""
    if not hasattr(os, "getuid"):
        return None
    folder = Path(tempfile.gettempdir(), f"streamgda-{os.getuid()}")
    folder.mkdir(mode=stat.S_IRWXU, exist_ok=True)
    found = folder.lstat()
    private = found.st_mode == stat.S_IFDIR | stat.S_IRWXU and found.st_uid == os.getuid()
    return str(folder) if private else None


def compile_or_load(kernel: Any, compile_: Callable[[Types], Any], signature: Types) -> Any:
    """Compile a kernel for arguments of some types, or load it; return its entry point.

    Kernels only read arrays that are read-only, so the code for any other arrays does for them,
    too. Files that cannot be read, or that hold another signature, are deleted.
    """
    writable = tuple(map(_writable, signature))
    try:
        with global_compiler_lock, _uncollected():
            compile_(writable)
    except NumbaError:
        raise
    except Exception as error:  # of any kind, if the pickle of a file is damaged
        if writable in kernel.overloads:
            warnings.warn(f"cannot save compiled kernels: {error}", RuntimeWarning, stacklevel=2)
    if writable not in kernel.overloads:
        for file in Path(kernel.stats.cache_path or _IN_TREE).glob("*.nb[ic]"):
            if _is_of(kernel, file.name):
                file.unlink(missing_ok=True)
        compile_(writable)
    compiled = kernel.overloads[writable]
    if writable != signature:
        with global_compiler_lock:
            _let_call(kernel, signature, compiled)
    return compiled.entry_point


def _let_call(kernel: Any, signature: Types, compiled: Any) -> None:
    """Let calls from Python with these types find compiled code, which is for writable arrays.

    Two threads may get here with the same types. They must not be added twice: calls would find
    two codes that are equally good, choose neither, and get here each time.
    """
    known = vars(kernel).setdefault("known_signatures", set())
    if signature not in known:
        alias = SimpleNamespace(
            signature=compiled.signature.replace(args=signature),
            entry_point=compiled.entry_point,
            objectmode=False,
        )
        kernel.add_overload(alias)
        known.add(signature)
        del kernel.overloads[signature]  # kernels that call this one need more than an entry point


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Stop the collection of garbage, which a fifth of the time of a compilation would go to."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _writable(kind: types.Type) -> types.Type:
    """Return the type without marks of read-only arrays."""
    if isinstance(kind, types.Array):
        return kind.copy(readonly=False)
    if isinstance(kind, types.Tuple | types.UniTuple):
        return types.BaseTuple.from_types(tuple(map(_writable, kind)))
    return kind
