"""The format of saved objects, opening zarr stores, and replacing files in one step.

`write` and `read` know the format only; the callers know what the arrays mean.
"""

from streamgda.storage.format import (
    FORMAT,
    VERSION,
    check_offset,
    checksum_of,
    kind_of,
    read,
    write,
)
from streamgda.storage.opening import described
from streamgda.storage.packing import pack_labels, pack_triangles, unpack_labels, unpack_triangles

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
