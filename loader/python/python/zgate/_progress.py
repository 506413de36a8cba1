"""How far a load is: a bar in GB/s, or whoever wants to know."""

from __future__ import annotations

from typing import Any, Callable, Protocol, Union

#: True shows a tqdm bar; a function is called with bytes done and bytes in all.
Progress = Union[bool, Callable[[int, int], None]]


class Countable(Protocol):
    """Something that knows how far it is, in bytes."""

    @property
    def total_bytes(self) -> int: ...
    @property
    def done_bytes(self) -> int: ...


class Meter:
    """Adds up one or several loads."""

    def __init__(self, wanted: Progress, what: str) -> None:
        self.done_bytes = 0
        self.total_bytes = 0
        self._before = 0
        self._bar: Any = _bar(what) if wanted is True else None
        self._tell = wanted if callable(wanted) else None

    def begin(self, load: Countable) -> None:
        """``load`` starts; others may have ended before."""
        self._before = self.done_bytes
        self.total_bytes += load.total_bytes
        if self._bar is not None:
            self._bar.total = self.total_bytes
            self._bar.refresh()

    def moved(self, load: Countable) -> None:
        """``load`` is as far as it says now."""
        self.done_bytes = self._before + load.done_bytes
        if self._bar is not None:
            self._bar.update(self.done_bytes - self._bar.n)
        if self._tell is not None:
            self._tell(self.done_bytes, self.total_bytes)

    def close(self) -> None:
        """Leaves the bar as it is."""
        if self._bar is not None:
            self._bar.refresh()
            self._bar.close()


def _bar(what: str) -> Any:
    try:
        from tqdm import tqdm
    except ImportError:
        raise ImportError("progress=True needs tqdm: pip install tqdm") from None

    class GigabytesPerSecond(tqdm):  # type: ignore[misc, type-arg, unused-ignore]
        """tqdm chooses the unit of its rate by itself; loads are compared in
        GB/s (10^9 bytes)."""

        @property
        def format_dict(self) -> Any:
            fields = super().format_dict
            seconds = fields["elapsed"]
            rate = fields["rate"] or (fields["n"] / seconds if seconds else 0.0)
            fields["gb_per_second"] = f"{rate / 1e9:.2f} GB/s"
            return fields

    form = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {gb_per_second}]"
    return GigabytesPerSecond(total=0, unit="B", unit_scale=True, desc=what, bar_format=form)
