"""Tensors of many models as one stream, and files as bytes."""

from __future__ import annotations

from typing import Any, Iterable, Iterator

from . import _zgate
from ._model import DEPTH, safe_open
from ._progress import shown


def stream(
    urls: str | Iterable[str],
    device: str = "cpu",
    ranks: tuple[int, int] | None = None,
    *,
    framework: str = "np",
    dim: int = 0,
    verify: bool = False,
    progress: bool = False,
) -> Iterator[tuple[str, Any]]:
    """Yields name and tensor of all models at ``urls``, one after the other.

    ``ranks=(rank, count)`` yields this rank's part along ``dim`` of every tensor
    that divides by ``count``, and others whole.
    """
    part = None if ranks is None else (dim, ranks[0], ranks[1])
    for url in [urls] if isinstance(urls, str) else urls:
        with safe_open(url, framework, device) as model:
            yield from model.tensors(part=part, verify=verify, progress=progress)


def open_file(
    url: str, *, progress: bool = False, depth: int = DEPTH, patience: float = 150.0
) -> Iterator[memoryview]:
    """Yields the bytes of a file, a GGUF model for instance, in order and in
    pieces of at most one transfer. Every piece owns its memory."""
    pieces = _zgate.Stream(url, patience, depth)
    for piece in _counted(pieces) if not progress else shown(_Counting(pieces), True, url):
        yield memoryview(piece)


def _counted(pieces: Any) -> Iterator[Any]:
    yield from pieces


class _Counting:
    """A stream that knows how far it is."""

    def __init__(self, pieces: Any) -> None:
        self._pieces = pieces
        self.total_bytes = pieces.total_bytes
        self.done_bytes = 0

    def __iter__(self) -> Iterator[Any]:
        for piece in self._pieces:
            self.done_bytes += len(piece)
            yield piece
