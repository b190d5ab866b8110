"""Versions of the package and of what it depends on, for reports of problems."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator
from typing import Any

__version__ = "0.3.0"

# Extras that users install; the others are for those who change the package.
_EXTRAS = ("plot", "arrow", "raster", "onnx")


def show_versions() -> None:
    """Print the versions of Python, streamgda and its dependencies, and the processor.

    The lines tell what a report of a problem needs: the kind of processor with the form of the
    kernels that it runs, the number of threads, and the BLAS libraries that are loaded.

    Examples
    --------
    >>> import streamgda
    >>> streamgda.show_versions()  # doctest: +ELLIPSIS
    streamgda     ...
    python        ...
    """
    for name, value in _lines():
        print(f"{name:<13} {value}")


def _lines() -> Iterator[tuple[str, str]]:
    """Yield names and values, in the order in which they are printed."""
    from llvmlite.binding import get_host_cpu_name  # noqa: PLC0415  (takes a second)

    from streamgda.kernels.processors import SHAPE  # noqa: PLC0415
    from streamgda.runtime.threads import n_threads  # noqa: PLC0415

    yield "streamgda", __version__
    yield "python", f"{platform.python_version()} ({sys.executable})"
    yield "system", platform.platform()
    forced = " (STREAMGDA_VECTORS)" if os.environ.get("STREAMGDA_VECTORS") else ""
    yield "processor", f"{get_host_cpu_name()}, {os.cpu_count()} cores"
    yield "kernels", f"{SHAPE.name}{forced}"
    yield "threads", str(n_threads())
    for library in _blas():
        number = library["version"] or "without a version"
        yield library["internal_api"], f"{number}, {library['num_threads']} threads, BLAS"
    for name in dependencies():
        yield name, _version(name) or "not installed"


def _blas() -> list[dict[str, Any]]:
    from threadpoolctl import threadpool_info  # noqa: PLC0415

    return [library for library in threadpool_info() if library["user_api"] == "blas"]


def dependencies() -> list[str]:
    """Return the names of the required packages, then those of the extras for users."""
    from importlib import metadata  # noqa: PLC0415

    required: list[str] = []
    optional: list[str] = []
    for line in metadata.requires("streamgda") or ():
        match = re.match(r"[\w.-]+", line)
        extra = re.search(r"""extra == ["']([\w-]+)["']""", line)
        if match and extra is None:
            required.append(match[0])
        elif match and extra and extra[1] in _EXTRAS:
            optional.append(match[0])
    return list(dict.fromkeys([*required, *optional]))


def _version(name: str) -> str | None:
    from importlib import metadata  # noqa: PLC0415

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
