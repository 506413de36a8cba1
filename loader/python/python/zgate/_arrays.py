"""From a tensor's bytes to an array, without a copy."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from . import _zgate


class _Type(NamedTuple):
    """What others call an element type of safetensors."""

    bits: int
    #: As numpy.dtype takes it; None where NumPy has none.
    numpy: str | None
    #: In ml_dtypes, where NumPy has none.
    ml_dtypes: str | None
    torch: str | None
    #: DLDataTypeCode; None where DLPack has none.
    dlpack: int | None


_INT, _UINT, _FLOAT, _BFLOAT, _COMPLEX, _BOOL = 0, 1, 2, 4, 5, 6
_E4M3FN, _E5M2, _E8M0FNU = 10, 12, 14

_TYPES = {
    "BOOL": _Type(8, "?", None, "bool", _BOOL),
    "U8": _Type(8, "u1", None, "uint8", _UINT),
    "I8": _Type(8, "i1", None, "int8", _INT),
    "U16": _Type(16, "<u2", None, "uint16", _UINT),
    "I16": _Type(16, "<i2", None, "int16", _INT),
    "F16": _Type(16, "<f2", None, "float16", _FLOAT),
    "BF16": _Type(16, None, "bfloat16", "bfloat16", _BFLOAT),
    "U32": _Type(32, "<u4", None, "uint32", _UINT),
    "I32": _Type(32, "<i4", None, "int32", _INT),
    "F32": _Type(32, "<f4", None, "float32", _FLOAT),
    "U64": _Type(64, "<u8", None, "uint64", _UINT),
    "I64": _Type(64, "<i8", None, "int64", _INT),
    "F64": _Type(64, "<f8", None, "float64", _FLOAT),
    "C64": _Type(64, "<c8", None, "complex64", _COMPLEX),
    "F8_E4M3": _Type(8, None, "float8_e4m3fn", "float8_e4m3fn", _E4M3FN),
    "F8_E5M2": _Type(8, None, "float8_e5m2", "float8_e5m2", _E5M2),
    "F8_E8M0": _Type(8, None, "float8_e8m0fnu", "float8_e8m0fnu", _E8M0FNU),
    # Two elements in a byte: torch counts the pairs.
    "F4": _Type(4, None, None, "float4_e2m1fn_x2", None),
}

#: kDLCPU, device 0.
_CPU = (1, 0)
#: kDLCUDA.
_CUDA = 2


class Tensor:
    """A tensor in host or GPU memory that any DLPack consumer can take as it is:
    ``torch.from_dlpack(tensor)``, ``numpy.from_dlpack(tensor)``, jax, cupy.

    It owns its memory, and so does everything made from it: all of them are the
    same bytes, which are released with the last.
    """

    __slots__ = ("_buffer", "_dtype", "_shape")

    def __init__(self, buffer: _zgate.Buffer, dtype: str, shape: tuple[int, ...]) -> None:
        self._buffer = buffer
        self._dtype = dtype
        self._shape = shape

    @property
    def dtype(self) -> str:
        """The element type as safetensors writes it, ``"BF16"`` for instance."""
        return self._dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each dimension."""
        return self._shape

    @property
    def nbytes(self) -> int:
        """Length in bytes."""
        return len(self._buffer)

    def __len__(self) -> int:
        if not self._shape:
            raise TypeError("a scalar has no length")
        return self._shape[0]

    def __repr__(self) -> str:
        return f"<zgate.Tensor {self._dtype} {list(self._shape)}, {self.nbytes} bytes>"

    def numpy(self) -> Any:
        """The same memory as a NumPy array of this shape; a copy of a GPU's."""
        return _numpy(self._buffer.to_host(), self._dtype, self._shape)

    def torch(self) -> Any:
        """The same memory as a torch tensor of this shape, on the device it is on."""
        return _torch(self._buffer, self._dtype, self._shape, "cpu")

    @property
    def device(self) -> str:
        """``"cpu"``, or ``"cuda:N"``."""
        kind, number = self._buffer.device
        return f"cuda:{number}" if kind == _CUDA else "cpu"

    def __dlpack_device__(self) -> tuple[int, int]:
        """(kDLCPU, 0), or (kDLCUDA, N)."""
        return self._buffer.device

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """A capsule over this memory (DLPack before 1.0, which all versions
        take). Raises ``BufferError`` for another device, for a copy and for
        types DLPack does not have."""
        here = self._buffer.device
        if dl_device is not None and tuple(dl_device) != here:
            raise BufferError(f"this tensor is on {self.device}, not on device {dl_device}")
        if copy:
            raise BufferError("this tensor is exported as it is; copy what you made of it")
        # On a GPU all that was to be written is: every stream sees it.
        if stream is not None and here == _CPU:
            raise BufferError("there are no streams on the CPU")
        known = _TYPES.get(self._dtype)
        if known is None or known.dlpack is None:
            raise BufferError(f"DLPack has no {self._dtype}")
        return self._buffer.dlpack(known.dlpack, known.bits, [*self._shape])


def array(
    buffer: _zgate.Buffer, dtype: str, shape: list[int], framework: str, device: str
) -> Any:
    """An array of ``shape`` over ``buffer``. It keeps the buffer alive."""
    if framework == "np":
        return _numpy(buffer, dtype, tuple(shape))
    if framework == "pt":
        return _torch(buffer, dtype, tuple(shape), device)
    return Tensor(buffer, dtype, tuple(shape))


def _numpy(buffer: _zgate.Buffer, dtype: str, shape: tuple[int, ...]) -> Any:
    import numpy

    known = _TYPES.get(dtype)
    if known is not None and known.numpy is not None:
        kind: Any = numpy.dtype(known.numpy)
    elif known is not None and known.ml_dtypes is not None:
        try:
            import ml_dtypes
        except ImportError:
            raise TypeError(
                f"NumPy has no {dtype}: install ml_dtypes, or use framework='pt' or 'dlpack'"
            ) from None
        if not hasattr(ml_dtypes, known.ml_dtypes):
            raise TypeError(f"this ml_dtypes ({ml_dtypes.__version__}) has no {dtype}")
        kind = numpy.dtype(getattr(ml_dtypes, known.ml_dtypes))
    else:
        raise TypeError(f"NumPy has no {dtype}: use framework='dlpack' and its bytes")
    if len(buffer) == 0:
        return numpy.empty(shape, dtype=kind)
    return numpy.frombuffer(memoryview(buffer), dtype=kind).reshape(shape)


def _torch(buffer: _zgate.Buffer, dtype: str, shape: tuple[int, ...], device: str) -> Any:
    import torch

    known = _TYPES.get(dtype)
    kind = getattr(torch, known.torch, None) if known is not None and known.torch else None
    if known is None or kind is None:
        raise TypeError(f"this torch ({torch.__version__}) has no {dtype}")
    if known.bits < 8:
        packed = 8 // known.bits
        if not shape or shape[-1] % packed:
            raise TypeError(f"torch packs {packed} elements of {dtype} in a byte; shape {shape}")
        shape = (*shape[:-1], shape[-1] // packed)
    kind_of_device, number = buffer.device
    if kind_of_device == _CUDA:
        device = f"cuda:{number}"
    if math.prod(shape) == 0:
        return torch.empty(shape, dtype=kind, device=device)
    if kind_of_device == _CUDA:
        # As bytes, which every torch takes.
        raw = Tensor(buffer, "U8", (len(buffer),))
        return torch.from_dlpack(raw).view(kind).reshape(shape)
    tensor = torch.frombuffer(buffer, dtype=torch.uint8).view(kind).reshape(shape)
    return tensor if device == "cpu" else tensor.to(device)
