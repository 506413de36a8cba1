"""From a tensor's bytes to an array, without a copy."""

from __future__ import annotations

from typing import Any

#: safetensors type -> NumPy type.
_NUMPY = {
    "BOOL": "?",
    "U8": "u1",
    "I8": "i1",
    "U16": "<u2",
    "I16": "<i2",
    "F16": "<f2",
    "U32": "<u4",
    "I32": "<i4",
    "F32": "<f4",
    "U64": "<u8",
    "I64": "<i8",
    "F64": "<f8",
    "C64": "<c8",
}

#: safetensors type -> name of the type in ml_dtypes.
_ML_DTYPES = {
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
}

#: safetensors type -> name of the type in torch.
_TORCH = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "F16": "float16",
    "BF16": "bfloat16",
    "U32": "uint32",
    "I32": "int32",
    "F32": "float32",
    "U64": "uint64",
    "I64": "int64",
    "F64": "float64",
    "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
}

FRAMEWORKS = ("np", "numpy", "pt", "torch", "pytorch")


def check(framework: str, device: str) -> None:
    """Refuses what cannot be done before anything is read."""
    if framework not in FRAMEWORKS:
        raise ValueError(f"framework {framework!r}: one of {', '.join(FRAMEWORKS)}")
    if device != "cpu" and is_numpy(framework):
        raise ValueError(f"NumPy arrays are on the CPU; device {device!r} needs framework='pt'")


def is_numpy(framework: str) -> bool:
    return framework in ("np", "numpy")


def array(buffer: Any, dtype: str, shape: list[int], framework: str, device: str) -> Any:
    """An array of ``shape`` over ``buffer``. It keeps the buffer alive."""
    if is_numpy(framework):
        return _numpy(buffer, dtype, shape)
    return _torch(buffer, dtype, shape, device)


def _numpy(buffer: Any, dtype: str, shape: list[int]) -> Any:
    import numpy

    if dtype in _NUMPY:
        kind: Any = numpy.dtype(_NUMPY[dtype])
    elif dtype in _ML_DTYPES:
        try:
            import ml_dtypes
        except ImportError:
            raise TypeError(
                f"NumPy has no {dtype}: install ml_dtypes, or use framework='pt'"
            ) from None
        kind = numpy.dtype(getattr(ml_dtypes, _ML_DTYPES[dtype]))
    else:
        raise TypeError(f"NumPy has no {dtype}")
    if len(buffer) == 0:
        return numpy.empty(shape, dtype=kind)
    return numpy.frombuffer(buffer, dtype=kind).reshape(shape)


def _torch(buffer: Any, dtype: str, shape: list[int], device: str) -> Any:
    import torch

    name = _TORCH.get(dtype)
    kind = getattr(torch, name, None) if name else None
    if kind is None:
        raise TypeError(f"this torch ({torch.__version__}) has no {dtype}")
    if len(buffer) == 0:
        return torch.empty(shape, dtype=kind, device=device)
    tensor = torch.frombuffer(buffer, dtype=torch.uint8).view(kind).reshape(shape)
    return tensor if device == "cpu" else tensor.to(device, non_blocking=True)
