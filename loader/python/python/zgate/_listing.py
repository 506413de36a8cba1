"""What lies in a directory of a server."""

from __future__ import annotations

import builtins
from typing import NamedTuple

from . import _zgate

_KINDS = {1: "file", 2: "directory", 5: "link"}


class Entry(NamedTuple):
    """One name in a directory."""

    name: str
    #: "file", "directory", "link" or "other".
    kind: str
    #: Length in bytes.
    size: int


def list(
    url: str, *, patience: float = 10.0, wait: float | None = None
) -> builtins.list[Entry]:
    """Lists the directory at ``url``, sorted by name.

    ``patience`` and ``wait`` are those of :func:`zgate.load_file`. Raises ``FileNotFoundError``, ``NotADirectoryError``,
    ``PermissionError``, ``ConnectionError`` or ``OSError``.
    """
    found = _zgate.entries(url, patience, wait)
    return sorted(Entry(name, _KINDS.get(kind, "other"), size) for name, kind, size in found)
