"""A bar in GB/s."""

from __future__ import annotations

from typing import Any, Iterator


def shown(load: Any, wanted: bool, what: str) -> Iterator[Any]:
    """Passes on what ``load`` yields; with ``wanted``, under a tqdm bar."""
    if not wanted:
        yield from load
        return
    try:
        from tqdm import tqdm
    except ImportError:
        raise ImportError("progress=True needs tqdm: pip install tqdm") from None
    bar = tqdm(total=load.total_bytes, unit="B", unit_scale=True, desc=what)
    with bar:
        for item in load:
            bar.update(load.done_bytes - bar.n)
            yield item
        bar.update(load.total_bytes - bar.n)
