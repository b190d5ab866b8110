"""Zip files in memory, which hold the members of a zarr store as those of ``save("x.zip")`` do."""

from __future__ import annotations

import io
import zipfile
from collections.abc import MutableMapping
from typing import Any

from zarr.buffer.cpu import Buffer
from zarr.storage import MemoryStore

from streamgda.errors import FormatError
from streamgda.storage.guards import check_stored

_UNIX = 3  # the system that all files name, so that their bytes are the same on every system


def to_zip(members: MutableMapping[str, Any]) -> bytes:
    """Return a zip file of the members of a zarr store, which are removed on the way.

    Members are sorted and have no times: equal members give equal bytes.
    """
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in sorted(members):
            entry = zipfile.ZipInfo(name)  # uncompressed, of 1980-01-01
            entry.create_system = _UNIX
            archive.writestr(entry, members.pop(name).to_bytes())
    return file.getvalue()


class ZippedBytes(MemoryStore):
    """A zarr store of the members of a zip file in memory; errors name it as ``data``.

    Parameters
    ----------
    data : bytes-like

    Raises
    ------
    TypeError
        For anything but bytes.
    FormatError
        If this is not a zip file, or its members are damaged, compressed, repeated or too long.
    """

    def __init__(self, data: Any) -> None:
        try:
            size = memoryview(data).nbytes
        except TypeError:
            given = type(data).__name__
            message = f"data is of type {given}; expected bytes (load() reads paths and stores)"
            raise TypeError(message) from None
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                check_stored(archive.infolist(), size, str(self))
                names = archive.namelist()
                members = {name: Buffer.from_bytes(archive.read(name)) for name in names}
        except FormatError:
            raise
        except Exception as error:  # damaged files raise many kinds
            raise FormatError(f"{self} is not a zarr group that can be read: {error!r}") from error
        super().__init__(members, read_only=True)

    def __str__(self) -> str:
        return "data"
