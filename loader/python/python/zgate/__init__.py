"""Loads models from any NFSv4.1 server straight into memory, without a mount.

Addresses are ``nfs://host[:port]/path?rdma=auto|on|off&connections=N``; the
path leads to a ``.safetensors`` file, to an index of several, or to a directory
that holds either.

>>> import zgate
>>> tensors = zgate.load_file("nfs://nas/models/all-MiniLM-L6-v2")   # doctest: +SKIP
>>> tensors["embeddings.word_embeddings.weight"].shape               # doctest: +SKIP
(30522, 384)

Tensors own their memory: they stay valid when the loader, the model and the
server are gone, and nothing else writes to them.
"""

import atexit

from . import _zgate
from ._arrays import Tensor
from ._device import DeviceError, why_no_cuda
from ._listing import Entry, list
from ._model import Slice, TensorStream, load_file, safe_open
from ._stream import FileStream, open_file, stream
from ._zgate import __version__

# Servers need not keep what nobody comes back for.
atexit.register(_zgate.leave)

__all__ = [
    "DeviceError",
    "Entry",
    "FileStream",
    "Slice",
    "Tensor",
    "TensorStream",
    "__version__",
    "list",
    "load_file",
    "open_file",
    "safe_open",
    "stream",
    "why_no_cuda",
]
