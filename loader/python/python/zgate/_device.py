"""Where tensors are to lie, and why they cannot."""

from __future__ import annotations

import re
from typing import Any, Literal

from . import _zgate

Framework = Literal["np", "numpy", "pt", "torch", "pytorch", "dlpack"]

_FRAMEWORKS = {
    "np": "np",
    "numpy": "np",
    "pt": "pt",
    "torch": "pt",
    "pytorch": "pt",
    "dlpack": "dlpack",
}
_DEVICE = re.compile(r"[a-z]+(:[0-9]+)?")


class DeviceError(RuntimeError):
    """The device that was asked for is not there, or not usable."""


def why_no_cuda(device: str = "cuda") -> str | None:
    """Why ``device`` (``"cuda"`` or ``"cuda:N"``) cannot be used; None if it can.

    The driver's library is looked for here, at the earliest: nothing of CUDA is
    needed to import this package.
    """
    return _zgate.why_no_cuda(int(device.partition(":")[2] or 0))


def why_no_torch_on(device: str) -> str | None:
    """Why torch has no tensors on a CUDA device; None if it has."""
    try:
        import torch
    except ImportError as error:
        return f"torch is not installed ({error}); pip install torch, or framework='dlpack'"
    if not torch.cuda.is_available():
        if torch.version.cuda is None and getattr(torch.version, "hip", None) is None:
            return f"this torch ({torch.__version__}) was built without CUDA"
        return f"torch {torch.__version__} finds no CUDA device or no driver for it"
    return None


def cuda_number(device: str) -> int | None:
    """The number of a CUDA device; None for another device."""
    kind, _, number = device.partition(":")
    return int(number or 0) if kind == "cuda" else None


def settle(framework: str | None, device: Any) -> tuple[str, str]:
    """The framework and the device meant. Refuses what cannot be done before
    anything is read.

    A number is that CUDA device. Without a framework, arrays on the CPU are
    NumPy's and others torch's.
    """
    wanted = f"cuda:{device}" if isinstance(device, int) else str(device)
    if _DEVICE.fullmatch(wanted) is None:
        raise ValueError(f"device {wanted!r}: 'cpu', 'cuda' or 'cuda:N'")
    if framework is None:
        framework = "np" if wanted == "cpu" else "pt"
    if framework not in _FRAMEWORKS:
        raise ValueError(f"framework {framework!r}: one of {', '.join(_FRAMEWORKS)}")
    kind = _FRAMEWORKS[framework]
    on_cuda = cuda_number(wanted) is not None
    if wanted != "cpu" and kind != "pt" and not (on_cuda and kind == "dlpack"):
        raise ValueError(
            f"framework {framework!r} has its arrays on the CPU; device {wanted!r} needs framework='pt'"
        )
    if on_cuda:
        reason = why_no_cuda(wanted) or (why_no_torch_on(wanted) if kind == "pt" else None)
        if reason is not None:
            raise DeviceError(f"device {wanted!r}: {reason}")
    elif kind == "pt":
        _torch_takes(wanted)
    return kind, wanted


def _torch_takes(device: str) -> None:
    try:
        import torch
    except ImportError as error:
        raise ImportError(f"framework='pt' needs torch ({error}): pip install torch") from None
    try:
        torch.device(device)
    except RuntimeError as error:
        raise DeviceError(f"device {device!r}: {error}") from None
