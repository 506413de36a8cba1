"""Models: some of their tensors, or all."""

from __future__ import annotations

from typing import Any, Iterator

from . import _zgate
from ._arrays import array, check
from ._progress import shown

#: Bytes being read, or read and not yet taken.
INFLIGHT_BYTES = 256 << 20
#: Requests under way.
DEPTH = 16


def load_file(
    url: str,
    device: str = "cpu",
    *,
    framework: str = "np",
    verify: bool = False,
    progress: bool = False,
    patience: float = 150.0,
) -> dict[str, Any]:
    """Loads all tensors of the model at ``url``.

    Returns a dictionary from names to arrays with the shapes the files give
    them: NumPy arrays, or torch tensors on ``device`` with ``framework="pt"``.
    ``verify`` compares checksums (a ``SHA256SUMS`` beside the files,
    ``sha256:NAME`` in their metadata) and raises ``ValueError`` where they
    differ. ``patience`` is how many seconds a request may take while the server
    cannot be reached or starts again.
    """
    with safe_open(url, framework, device, patience=patience) as model:
        return dict(model.tensors(verify=verify, progress=progress))


class safe_open:
    """An open model, in the shape of ``safetensors.safe_open``.

    >>> with zgate.safe_open("nfs://nas/models/m") as model:        # doctest: +SKIP
    ...     for name in model.keys():
    ...         tensor = model.get_tensor(name)
    """

    def __init__(
        self,
        url: str,
        framework: str = "np",
        device: str = "cpu",
        *,
        patience: float = 150.0,
    ) -> None:
        check(framework, device)
        self._model = _zgate.Model(url, patience)
        self._framework = framework
        self._device = device

    def __enter__(self) -> "safe_open":
        return self

    def __exit__(self, *_: object) -> None:
        del self._model

    def keys(self) -> list[str]:
        """The names of the tensors, sorted."""
        return self._model.names()

    def offset_keys(self) -> list[str]:
        """The same; tensors are read in the order of the file anyway."""
        return self._model.names()

    def metadata(self) -> dict[str, str]:
        """The free text of the model's files."""
        return self._model.metadata()

    def files(self) -> list[tuple[str, int]]:
        """Name and length in bytes of the model's files."""
        return self._model.files()

    def get_tensor(self, name: str) -> Any:
        """One tensor. For many, :meth:`tensors` is faster: it reads them in few
        large requests."""
        for _, tensor in self.tensors([name]):
            return tensor
        raise KeyError(name)

    def get_slice(self, name: str) -> "Slice":
        """One tensor of which a part is wanted."""
        info = self._model.info(name)
        if info is None:
            raise KeyError(name)
        return Slice(self, name, info)

    def tensors(
        self,
        names: list[str] | None = None,
        *,
        part: tuple[int, int, int] | None = None,
        verify: bool = False,
        progress: bool = False,
        inflight_bytes: int = INFLIGHT_BYTES,
        depth: int = DEPTH,
    ) -> Iterator[tuple[str, Any]]:
        """Yields name and tensor as they arrive, about in the order of the file.

        ``names`` chooses some; ``part=(dim, rank, ranks)`` yields that rank's
        part of every tensor that divides, others whole. Along dimension 0 only
        the part is read. ``inflight_bytes`` bounds what is read ahead.
        """
        load = self._model.start(names, part, inflight_bytes, depth, verify)
        try:
            for name, dtype, shape, buffer in shown(load, progress, "loading"):
                yield name, array(buffer, dtype, shape, self._framework, self._device)
        finally:
            load.close()


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
        """The shape of the whole tensor."""
        return list(self._info[1])

    def part(self, dim: int, rank: int, ranks: int) -> Any:
        """Part ``rank`` of ``ranks`` along ``dim``, whose length has to divide."""
        shape = self.get_shape()
        if not 0 <= dim < len(shape) or not 0 <= rank < ranks or shape[dim] % ranks:
            raise ValueError(f"{self._name}: {shape} has no part {rank} of {ranks} along {dim}")
        for _, tensor in self._model.tensors([self._name], part=(dim, rank, ranks)):
            return tensor
        raise KeyError(self._name)

    def __getitem__(self, index: Any) -> Any:
        """Reads the tensor and cuts it; the result keeps the whole alive."""
        return self._model.get_tensor(self._name)[index]
