"""Saved groups: the format, guarded stores, and opening any zarr store.

`write` and `read` know the format only; the meaning of the arrays is known to their callers.
"""

from streamgda.storage.groups import (
    FORMAT,
    VERSION,
    checksum_of,
    described,
    kind_of,
    pack_labels,
    pack_triangles,
    read,
    unpack_labels,
    unpack_triangles,
    write,
)

__all__ = [
    "FORMAT",
    "VERSION",
    "checksum_of",
    "described",
    "kind_of",
    "pack_labels",
    "pack_triangles",
    "read",
    "unpack_labels",
    "unpack_triangles",
    "write",
]
