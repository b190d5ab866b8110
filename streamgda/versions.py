"""The version of the package, and those of what it depends on for reports of problems."""

import platform
import re
import sys
from importlib import metadata

__version__ = "1.0.0"

_OPTIONAL = ("pyarrow", "matplotlib", "xarray", "obstore")


def show_versions() -> None:
    """Print the versions of Python, streamgda and its dependencies, and the processor.

    Examples
    --------
    >>> import streamgda
    >>> streamgda.show_versions()  # doctest: +ELLIPSIS
    streamgda     ...
    python        ...
    """
    from llvmlite.binding import get_host_cpu_name  # noqa: PLC0415  It takes a second.
    from threadpoolctl import threadpool_info  # noqa: PLC0415

    from streamgda.kernels.vectors import SHAPE  # noqa: PLC0415

    lines = {
        "streamgda": __version__,
        "python": f"{platform.python_version()} ({sys.executable})",
        "system": platform.platform(),
        "processor": get_host_cpu_name(),
        "kernels": SHAPE.name,
    }
    for library in threadpool_info():
        shown = f"{library['version']}, {library['num_threads']} threads"
        lines[library["internal_api"]] = shown
    for name in dependencies():
        try:
            lines[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            lines[name] = "not installed"
    for name, value in lines.items():
        print(f"{name:<13} {value}")


def dependencies() -> list[str]:
    """Return the names of the packages that are required, then those that users may add."""
    required = [line for line in metadata.requires("streamgda") or [] if "extra ==" not in line]
    return [re.split(r"[^\w.-]", line)[0] for line in required] + [*_OPTIONAL]
