"""The codec pipeline of zarrs, which reads the files of local stores itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zarr.storage import LocalStore
from zarrs import ZarrsCodecPipeline

from streamgda.storage.guards import Complete

# Codecs that zarrs and zarr decode to the same bits. That of scales and offsets, for example, is
# not one of them: it rounds otherwise.
_SAME = {"blosc", "bytes", "crc32c", "gzip", "sharding_indexed", "transpose", "zlib", "zstd"}


class Pipeline(ZarrsCodecPipeline):
    """The pipeline of zarrs, which also finds that chunks of a `Complete` store are missing."""

    async def read(self, batch_info: Any, out: Any, drop_axes: tuple[int, ...] = ()) -> None:
        """Read chunks into an array; see `zarr.abc.codec.CodecPipeline`."""
        chunks = list(batch_info)
        for getter, *_ in chunks:
            if isinstance(getter.store, Complete):
                getter.store.check_file(getter.path)
        await super().read(chunks, out, drop_axes)


def pipeline_of(array: Any) -> Pipeline | None:
    """Return a pipeline for a `zarr.AsyncArray`; None if zarrs cannot read it."""
    store = array.store_path.store
    files = store.wrapped if isinstance(store, Complete) else store
    codecs = set(_codecs(array.metadata.to_dict()))
    if type(files) is not LocalStore or not codecs <= _SAME:  # a subclass may read otherwise
        return None
    found = Pipeline.from_array_metadata_and_store(array.metadata, files)
    return found if found.impl is not None else None


def _codecs(metadata: dict[str, Any]) -> Iterator[str]:
    """Yield the names of all codecs of an array, in version 2 or 3 of the format."""
    kinds = ("codecs", "index_codecs", "filters")
    for codec in [metadata.get("compressor"), *(c for k in kinds for c in metadata.get(k) or ())]:
        if codec is not None:
            yield codec.get("id") or codec["name"]
            yield from _codecs(codec.get("configuration") or {})
