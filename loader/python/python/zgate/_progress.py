"""How far a load is: a bar in GB/s, or whoever wants to know."""

from __future__ import annotations

import sys
import time
from typing import Any, Callable, Protocol, TextIO, Union

#: True shows a bar; a function is called with bytes done and bytes in all.
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
        self._bar: Bar | None = _bar(what) if wanted is True else None
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


class Bar(Protocol):
    """The part of tqdm's bar that is used."""

    total: int
    n: int

    def update(self, n: int) -> Any: ...
    def refresh(self) -> Any: ...
    def close(self) -> None: ...


def _bar(what: str) -> Bar:
    """tqdm's bar where tqdm is installed, otherwise a line of text."""
    try:
        from tqdm import tqdm
    except ImportError:
        return Line(what, sys.stderr)

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
    bar: Bar = GigabytesPerSecond(total=0, unit="B", unit_scale=True, desc=what, bar_format=form)
    return bar


#: Pause between two outputs of a line.
_LINE_SECONDS = 0.1


class Line:
    """Progress as one line, written over on a terminal and once, at the end,
    elsewhere."""

    def __init__(self, what: str, file: TextIO | None) -> None:
        self.total = 0
        self.n = 0
        self._what = what
        # Programs without a terminal may have no standard error.
        self._file = file
        self._is_terminal = file is not None and file.isatty()
        self._begun = time.monotonic()
        self._next = self._begun

    def update(self, n: int) -> None:
        """So many bytes more."""
        self.n += n
        if self._is_terminal and time.monotonic() >= self._next:
            self.refresh()

    def refresh(self) -> None:
        """Shows it as it is now."""
        if self._is_terminal:
            self._write("\r", "")
            self._next = time.monotonic() + _LINE_SECONDS

    def close(self) -> None:
        """Shows it for the last time."""
        self._write("\r" if self._is_terminal else "", "\n")
        self._file = None

    def _write(self, begin: str, end: str) -> None:
        if self._file is None:
            return
        seconds = time.monotonic() - self._begun
        rate = self.n / seconds / 1e9 if seconds else 0.0
        percent = 100 * self.n // self.total if self.total else 100
        done, total = f"{self.n / 1e6:.0f}", f"{self.total / 1e6:.0f}"
        text = f"{self._what}: {percent:3d}% {done}/{total} MB [{seconds:.1f} s, {rate:.2f} GB/s]"
        self._file.write(begin + text + end)
        self._file.flush()
