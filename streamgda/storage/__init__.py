"""The format of saved objects, opening zarr stores, and replacing files in one step.

`write` and `read` know the format only; the callers know what the arrays mean.
"""

from streamgda.storage.format import (
    FORMAT,
    VERSION,
    check_offset,
    checksum_of,
    kind_of,
    pack_labels,
    pack_triangles,
    read,
    unpack_labels,
    unpack_triangles,
    write,
)
from streamgda.storage.opening import described

__all__ = [
    "FORMAT",
    "VERSION",
    "check_offset",
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
