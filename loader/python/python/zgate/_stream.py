"""Tensors of many models as one stream, and files as bytes."""

from __future__ import annotations

from typing import Any, Generator, Iterable, Iterator

from . import _zgate
from ._arrays import array
from ._closing import Closing
from ._device import cuda_number, settle
from ._model import DEPTH, INFLIGHT_BYTES, PATIENCE_SECONDS, TensorStream, check_part
from ._progress import Meter, Progress


def stream(
    urls: str | Iterable[str],
    device: Any = "cpu",
    ranks: tuple[int, int] | None = None,
    *,
    framework: str | None = None,
    dim: int = 0,
    verify: bool = False,
    progress: Progress = False,
    patience: float = PATIENCE_SECONDS,
    wait: float | None = None,
) -> TensorStream:
    """Yields name and tensor of all models at ``urls``, one after the other.

    ``ranks=(rank, count)`` yields this rank's part along ``dim`` of every tensor
    that divides by ``count``, with ``shape[dim] // count`` elements there, and
    others whole. ``device``, ``framework``, ``verify``, ``progress``,
    ``patience`` and ``wait`` (seconds) are those of :func:`zgate.load_file`.

    >>> with zgate.stream(urls, "cuda:0", ranks=(3, 8)) as tensors:  # doctest: +SKIP
    ...     for name, tensor in tensors:
    ...         weights[name].copy_(tensor)
    """
    part = None if ranks is None else (dim, ranks[0], ranks[1])
    if part is not None:
        check_part(*part)
    kind, where = settle(framework, device)
    chosen = [urls] if isinstance(urls, str) else [*urls]
    meter = Meter(progress, "loading")

    def each() -> Generator[tuple[str, Any], None, None]:
        try:
            for url in chosen:
                model = _zgate.Model(url, patience, wait)
                load = model.start(
                    None, part, INFLIGHT_BYTES, DEPTH, verify, cuda_number(where)
                )
                try:
                    meter.begin(load)
                    for name, dtype, shape, buffer in load:
                        meter.moved(load)
                        yield name, array(buffer, dtype, shape, kind, where)
                    meter.moved(load)
                finally:
                    load.close()
                    model.close()
        finally:
            meter.close()

    return TensorStream(each(), meter)


class FileStream(Closing, Iterator[memoryview]):
    """The bytes of a file in order: an iterator and a context manager."""

    def __init__(self, file: _zgate.RemoteFile, depth: int, progress: Progress, what: str) -> None:
        self._file = file
        self._pieces = file.stream(0, file.size, depth)
        self._done_bytes = 0
        self._meter = Meter(progress, what)
        self._meter.begin(self)

    def __iter__(self) -> "FileStream":
        return self

    def __next__(self) -> memoryview:
        try:
            piece = next(self._pieces)
        except BaseException:
            self._meter.close()
            raise
        self._done_bytes += len(piece)
        self._meter.moved(self)
        return memoryview(piece)

    @property
    def transport(self) -> str:
        """What carries the data now, and why, in words for people."""
        return self._file.transport()

    @property
    def total_bytes(self) -> int:
        """Length of the file in bytes."""
        return self._pieces.total_bytes

    @property
    def done_bytes(self) -> int:
        """Bytes handed out."""
        return self._done_bytes

    def close(self) -> None:
        """Stops it. Pieces handed out stay."""
        self._pieces.close()
        self._meter.close()


def open_file(
    url: str,
    *,
    progress: Progress = False,
    depth: int = DEPTH,
    patience: float = PATIENCE_SECONDS,
    wait: float | None = None,
) -> FileStream:
    """Yields the bytes of a file, a GGUF model for instance, in order and in
    pieces of at most one transfer (``memoryview`` of unsigned bytes). Every
    piece owns its memory. ``depth`` bounds the requests under way, ``patience``
    and ``wait`` (seconds) are those of :func:`zgate.load_file`."""
    file = _zgate.RemoteFile(url, patience, wait)
    return FileStream(file, depth, progress, url.rpartition("/")[2])
