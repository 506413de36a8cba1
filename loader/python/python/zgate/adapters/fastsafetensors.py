"""A copier and a loader for fastsafetensors: its files may be ``nfs://`` addresses.

>>> from zgate.adapters.fastsafetensors import ZgateLoader           # doctest: +SKIP
>>> loader = ZgateLoader(None, device="cuda:0")                      # doctest: +SKIP
>>> loader.add_filenames({0: ["nfs://nas/models/m/model.safetensors"]})   # doctest: +SKIP
>>> buffers = loader.copy_files_to_device()                          # doctest: +SKIP
>>> weight = buffers.get_tensor("a.weight")                          # doctest: +SKIP

Importing this module registers the copier type ``"zgate"``. Bytes arrive in host
memory and are copied once, into the memory that fastsafetensors allocated, on
whichever device. Only its PyTorch framework is supported. Written against
fastsafetensors 0.5.0.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any, Dict, List, Optional, Set, Tuple

import torch
from fastsafetensors import SafeTensorsMetadata
from fastsafetensors import cpp as fstcpp
from fastsafetensors.common import init_logger
from fastsafetensors.copier import CopierInterface, register_copier_constructor
from fastsafetensors.copier.base import validated_byte_ranges, validated_chunk_allocation_size
from fastsafetensors.copier.nogds import load_library_func
from fastsafetensors.dlpack import from_cuda_buffer
from fastsafetensors.frameworks import get_framework_op
from fastsafetensors.loader import BaseSafeTensorsFileLoader
from fastsafetensors.st_types import Device, DeviceType, DType

from .. import _zgate
from .._device import settle
from .._model import DEPTH, PATIENCE_SECONDS

logger = init_logger(__name__)

#: As safetensors bounds it.
_MAX_HEADER_BYTES = 100_000_000


def is_remote(name: str) -> bool:
    """Whether a file name is an address of a server."""
    return name.startswith("nfs://")


def read_metadata(
    url: str, framework: Any, patience: float = PATIENCE_SECONDS
) -> SafeTensorsMetadata:
    """Reads the header of the file at ``url`` and nothing else.

    Raises ``ValueError`` for a header that cannot be one, and what
    :func:`zgate.open_file` raises.
    """
    file = _zgate.RemoteFile(url, patience, None)
    if file.size < 8:
        raise ValueError(f"{url}: {file.size} bytes are no safetensors file")
    length = int.from_bytes(_bytes(file, 0, 8), "little")
    if length > min(_MAX_HEADER_BYTES, file.size - 8):
        raise ValueError(f"{url}: a header of {length} bytes in a file of {file.size}")
    try:
        text = _bytes(file, 8, 8 + length).decode("utf-8")
        return SafeTensorsMetadata(text, 8 + length, file.size, framework, src=url)
    except UnicodeDecodeError as error:
        raise ValueError(f"{url}: the header is no text: {error}") from None


def _bytes(file: _zgate.RemoteFile, begin: int, end: int) -> bytes:
    with closing(file.stream(begin, end, 1)) as pieces:
        return b"".join(memoryview(piece) for piece in pieces)


class ZgateCopier(CopierInterface):
    """Copies one file's tensors from a server into a device's memory."""

    def __init__(
        self,
        metadata: SafeTensorsMetadata,
        device: Device,
        framework: Any,
        patience: float = PATIENCE_SECONDS,
        depth: int = DEPTH,
    ) -> None:
        self.metadata = metadata
        self._device = device
        self._framework = framework
        self._file = _zgate.RemoteFile(metadata.src, patience, None)
        self._depth = depth
        self._ranges: Optional[List[Tuple[int, int]]] = None
        self._names: Optional[Set[str]] = None
        self._allocation_bytes: Optional[int] = None
        self._base = metadata.header_length
        if self._file.size != metadata.size_bytes:
            raise ValueError(
                f"{metadata.src}: {self._file.size} bytes, {metadata.size_bytes} when its header was read"
            )

    def set_byte_ranges(self, byte_ranges: Optional[List[Tuple[int, int]]]) -> None:
        """Reads only these ``[start, end)`` stretches of the file."""
        self._ranges = validated_byte_ranges(self.metadata, byte_ranges)

    def set_chunk(
        self,
        byte_ranges: List[Tuple[int, int]],
        names: Set[str],
        allocation_size: Optional[int] = None,
    ) -> None:
        """Loads only ``names``, into memory for their stretch of the file."""
        ranges = validated_byte_ranges(self.metadata, byte_ranges) or []
        self._ranges = ranges
        self._names = names
        self._allocation_bytes = validated_chunk_allocation_size(ranges, allocation_size)

    @classmethod
    def chunk_transient_multiplier(cls, paths: List[str]) -> int:
        """A chunk is on the device once: what is under way is host memory."""
        return 1

    @classmethod
    def fixed_device_overhead(cls, paths: List[str]) -> int:
        """None on the device."""
        return 0

    def submit_io(self, use_buf_register: bool, max_copy_block_size: int) -> Any:
        """Allocates, reads and copies; it returns when the bytes are there."""
        header, size = self.metadata.header_length, self.metadata.size_bytes
        ranges = [(header, size)] if self._ranges is None else self._ranges
        if self._names is None:
            self._base, length = header, size - header
        else:
            self._base = min((start for start, _ in ranges), default=header)
            span = max((end for _, end in ranges), default=self._base) - self._base
            length = self._allocation_bytes or span
        memory = self._framework.alloc_tensor_memory(length, self._device)
        try:
            if length > 0:
                whole = from_cuda_buffer(
                    memory.get_base_address(), [length], [1], DType.U8, self._device, None
                )
                target = self._framework.from_dlpack(whole, self._device, DType.U8).get_raw()
                for start, end in ranges:
                    self._copy(target, start, end)
        except BaseException:
            self._framework.free_tensor_memory(memory, self._device)
            raise
        return memory

    def _copy(self, target: torch.Tensor, start: int, end: int) -> None:
        at = start - self._base
        with closing(self._file.stream(start, end, self._depth)) as pieces:
            for piece in pieces:
                # copy_ runs without the interpreter's lock.
                source = torch.frombuffer(piece, dtype=torch.uint8)
                target[at : at + len(piece)].copy_(source)
                at += len(piece)
        if at != end - self._base:
            raise ValueError(f"{self.metadata.src}: the file ends at byte {at + self._base}, not {end}")

    def wait_io(
        self, gbuf: Any, dtype: DType = DType.AUTO, noalign: bool = False, owner: Any = None
    ) -> Dict[str, Any]:
        """The tensors; their bytes are there already."""
        tensors: Dict[str, Any] = self.metadata._get_tensors(
            gbuf, self._device, self._base, dtype=dtype, names=self._names, owner=owner
        )
        return tensors


@register_copier_constructor("zgate", ZgateCopier)
def new_zgate_copier(
    device: Device,
    patience: float = PATIENCE_SECONDS,
    depth: int = DEPTH,
    **_: Any,
) -> Any:
    """What fastsafetensors calls to make copiers of type ``"zgate"``."""

    def construct(metadata: SafeTensorsMetadata, device: Device, framework: Any) -> ZgateCopier:
        return ZgateCopier(metadata, device, framework, patience, depth)

    return construct


class ZgateLoader(BaseSafeTensorsFileLoader):
    """A fastsafetensors loader whose files are ``nfs://`` addresses.

    ``pg`` is a process group or None, ``device`` as torch writes it;
    ``patience`` is in seconds, ``depth`` the requests under way for each file.
    It can be given to ``fastsafetensors.parallel_loader.PipelineParallel``.
    """

    def __init__(
        self,
        pg: Optional[Any],
        device: str = "cpu",
        patience: float = PATIENCE_SECONDS,
        depth: int = DEPTH,
        set_numa: bool = True,
        disable_cache: bool = True,
        debug_log: bool = False,
        framework: str = "pytorch",
        **kwargs: Any,
    ) -> None:
        if framework != "pytorch":
            raise ValueError(f"framework {framework!r}: this copier is for 'pytorch' only")
        settle("pt", device)
        operations = get_framework_op(framework)
        where = operations.get_device(device, operations.get_process_group(pg))
        load_library_func(operations)
        fstcpp.set_debug_log(debug_log)
        super().__init__(
            pg,
            where,
            "zgate",
            set_numa and where.type != DeviceType.CPU,
            disable_cache,
            framework,
            patience=patience,
            depth=depth,
            **kwargs,
        )
        self._patience = patience

    def add_filenames(self, filenames: Dict[int, List[str]]) -> None:
        """Registers the files of each rank; their headers are read here."""
        for name in (name for names in filenames.values() for name in names):
            if not is_remote(name):
                raise ValueError(f"{name}: not an nfs:// address")
        # In turn, so that no rank's files pile up at the end.
        longest = max((len(names) for names in filenames.values()), default=0)
        for index in range(longest):
            for rank, names in filenames.items():
                if index < len(names):
                    self._add(names[index], rank)

    def _add(self, url: str, rank: int) -> None:
        metadata = getattr(self, "_metadata_cache", {}).get(url)
        if metadata is None:
            metadata = read_metadata(url, self.framework, self._patience)
        self.meta[url] = (metadata, rank)
        self.frames.update(metadata.tensors)
