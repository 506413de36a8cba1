"""Models: some of their tensors, or all."""

from __future__ import annotations

from typing import Any, Generator, Iterable, Iterator

from . import _zgate
from ._arrays import array
from ._closing import Closing
from ._device import cuda_number, settle
from ._progress import Meter, Progress

#: Bytes being read, or read and not yet taken.
INFLIGHT_BYTES = 256 << 20
#: Requests under way.
DEPTH = 16
#: Seconds a request may take while the server cannot be reached.
PATIENCE_SECONDS = 150.0


def load_file(
    url: str,
    device: Any = "cpu",
    *,
    framework: str | None = None,
    verify: bool = False,
    progress: Progress = False,
    patience: float = PATIENCE_SECONDS,
    wait: float | None = None,
) -> dict[str, Any]:
    """Loads all tensors of the model at ``url``.

    Returns a dictionary from names to arrays with the shapes the files give
    them: NumPy arrays, or torch tensors with ``framework="pt"`` or a ``device``
    other than ``"cpu"``, or :class:`zgate.Tensor` with ``framework="dlpack"``.
    ``verify`` compares checksums (a ``SHA256SUMS`` beside the files,
    ``sha256:NAME`` in their metadata) and raises ``ValueError`` where they
    differ, and where there is none. ``progress`` is True for a bar in GB/s (tqdm's, if it is installed),
    or a function that is called with bytes done and bytes in all. ``patience`` is
    how many seconds a request may take while the server cannot be reached or
    starts again, ``wait`` how many a server may take that has not answered yet:
    10 by default, or ``patience`` if that is less.

    Raises ``ValueError`` (address, damaged file), ``FileNotFoundError``,
    ``PermissionError``, ``ConnectionError``, :class:`zgate.DeviceError`.
    """
    with safe_open(url, framework, device, patience=patience, wait=wait) as model:
        with model.tensors(verify=verify, progress=progress) as tensors:
            return dict(tensors)


class TensorStream(Closing, Iterator[tuple[str, Any]]):
    """Tensors as they arrive: an iterator of (name, array), to be used as a
    context manager where it may be left before its end."""

    def __init__(
        self, source: Generator[tuple[str, Any], None, None], meter: Meter
    ) -> None:
        self._source = source
        self._meter = meter

    def __iter__(self) -> "TensorStream":
        return self

    def __next__(self) -> tuple[str, Any]:
        return next(self._source)

    @property
    def done_bytes(self) -> int:
        """Bytes read when the last tensor was handed out."""
        return self._meter.done_bytes

    @property
    def total_bytes(self) -> int:
        """Bytes to be read of the models opened so far."""
        return self._meter.total_bytes

    def close(self) -> None:
        """Stops it. Tensors handed out stay."""
        self._source.close()
        self._meter.close()


class safe_open(Closing):
    """An open model, in the shape of ``safetensors.safe_open``.

    >>> with zgate.safe_open("nfs://nas/models/m") as model:        # doctest: +SKIP
    ...     for name in model.keys():
    ...         tensor = model.get_tensor(name)

    ``device`` is ``"cpu"``, ``"cuda"`` or ``"cuda:N"``; ``framework`` is
    ``"np"``, ``"pt"`` or ``"dlpack"``, and when it is not given NumPy on the CPU
    and torch elsewhere. Files are opened and their headers checked here; data is
    read when it is asked for. Leaving the ``with`` block closes the files;
    tensors stay.
    """

    def __init__(
        self,
        url: str,
        framework: str | None = None,
        device: Any = "cpu",
        *,
        patience: float = PATIENCE_SECONDS,
        wait: float | None = None,
    ) -> None:
        self._framework, self._device = settle(framework, device)
        self._model = _zgate.Model(url, patience, wait)

    def close(self) -> None:
        """Closes the files. What is asked for later raises ``ValueError``."""
        self._model.close()

    @property
    def transport(self) -> str:
        """What carries the data now, and why: how many connections go over RDMA
        and how many over TCP, and the reason where RDMA is not used. In words
        for people."""
        return self._model.transport()

    def keys(self) -> list[str]:
        """The names of the tensors, sorted."""
        return self._model.names()

    def offset_keys(self) -> list[str]:
        """The names of the tensors, in the order of their bytes."""
        return self._model.offset_names()

    def metadata(self) -> dict[str, str]:
        """The free text of the model's files."""
        return self._model.metadata()

    def files(self) -> list[tuple[str, int]]:
        """Name and length in bytes of the model's files."""
        return self._model.files()

    def get_tensor(self, name: str) -> Any:
        """One tensor, with the shape the file gives it. For many,
        :meth:`tensors` is faster: it reads them in few large requests. Raises
        ``KeyError`` for a name that is not there."""
        with self.tensors([name]) as tensors:
            # To the end, where a change of the file is noticed.
            return dict(tensors)[name]

    def get_slice(self, name: str) -> "Slice":
        """One tensor of which a part is wanted. Raises ``KeyError``."""
        info = self._model.info(name)
        if info is None:
            raise KeyError(name)
        return Slice(self, name, info)

    def tensors(
        self,
        names: Iterable[str] | None = None,
        *,
        part: tuple[int, int, int] | None = None,
        verify: bool = False,
        progress: Progress = False,
        inflight_bytes: int = INFLIGHT_BYTES,
        depth: int = DEPTH,
    ) -> TensorStream:
        """Yields name and tensor as they arrive, about in the order of the file.

        ``names`` chooses some; ``part=(dim, rank, ranks)`` yields that rank's
        part of every tensor that divides, with ``shape[dim] // ranks`` elements
        along ``dim``, and others whole. Along dimension 0 only the part is read.
        ``verify`` compares files and tensors that are read whole, and raises
        ``ValueError`` if none of them has a checksum. ``inflight_bytes`` bounds
        what is read ahead, ``depth`` the requests under way.
        """
        if part is not None:
            check_part(*part)
        load = self._model.start(
            None if names is None else [*names],
            part,
            inflight_bytes,
            depth,
            verify,
            cuda_number(self._device),
        )
        meter = Meter(progress, "loading")
        return TensorStream(self._arrays(load, meter), meter)

    def _arrays(
        self, load: _zgate.Load, meter: Meter
    ) -> Generator[tuple[str, Any], None, None]:
        try:
            meter.begin(load)
            for name, dtype, shape, buffer in load:
                meter.moved(load)
                yield name, array(buffer, dtype, shape, self._framework, self._device)
            meter.moved(load)
        finally:
            load.close()
            meter.close()


def check_part(dim: int, rank: int, ranks: int) -> None:
    """Refuses a part there cannot be."""
    if dim < 0 or ranks < 1 or not 0 <= rank < ranks:
        raise ValueError(f"rank {rank} of {ranks} along dimension {dim}: 0 <= rank < ranks, dim >= 0")


class Slice:
    """A tensor that has not been read yet."""

    def __init__(self, model: safe_open, name: str, info: tuple[str, list[int], int, str]) -> None:
        self._model = model
        self._name = name
        self._info = info

    def get_dtype(self) -> str:
        """The element type as safetensors writes it, F16 for instance."""
        return self._info[0]

    def get_shape(self) -> list[int]:
        """The shape of the whole tensor, in elements."""
        return [*self._info[1]]

    def part(self, dim: int, rank: int, ranks: int) -> Any:
        """Part ``rank`` of ``ranks`` along ``dim``, whose length has to divide:
        an array with ``shape[dim] // ranks`` elements there."""
        shape = self.get_shape()
        check_part(dim, rank, ranks)
        if dim >= len(shape) or shape[dim] % ranks:
            raise ValueError(f"{self._name}: {shape} has no part {rank} of {ranks} along {dim}")
        with self._model.tensors([self._name], part=(dim, rank, ranks)) as tensors:
            # To the end, where a change of the file is noticed.
            return dict(tensors)[self._name]

    def __getitem__(self, index: Any) -> Any:
        """Reads the tensor and cuts it; the result keeps the whole alive."""
        return self._model.get_tensor(self._name)[index]
