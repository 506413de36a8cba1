"""A load format for vLLM: ``--load-format zgate``.

vLLM finds :func:`register` through the entry point ``vllm.general_plugins`` of
this package's metadata; nothing has to be imported by hand::

    vllm serve /models/my-model --load-format zgate \\
        --model-loader-extra-config '{"url": "nfs://nas/models/my-model"}'

``/models/my-model`` is a local directory with the model's configuration and
tokenizer (a few small files: ``zgate cp`` brings them); the weights come from
``url``. Keys of the extra configuration:

- ``url``: a directory, a ``.safetensors`` file or an index; needed;
- ``verify``: compare checksums (false);
- ``patience``: seconds a request may take while the server cannot be reached
  (150);
- ``wait``: seconds a server may take that has not answered yet (10);
- ``inflight_bytes``: what is read ahead at most (256 MiB).

Every tensor-parallel rank reads the tensors it asks for whole; vLLM cuts them.
Written against vLLM 0.33.0.
"""

from __future__ import annotations

from typing import Any, Generator, Iterable

from .._model import INFLIGHT_BYTES, PATIENCE_SECONDS, safe_open

LOAD_FORMAT = "zgate"

_KEYS = frozenset({"url", "verify", "patience", "wait", "inflight_bytes"})


class Source:
    """Where weights come from, out of ``--model-loader-extra-config``."""

    def __init__(self, extra: Any) -> None:
        if not isinstance(extra, dict):
            raise ValueError(f"load format {LOAD_FORMAT}: the extra configuration is no dictionary")
        if unknown := sorted(set(extra) - _KEYS):
            raise ValueError(
                f"load format {LOAD_FORMAT}: unknown keys {unknown}; known are {sorted(_KEYS)}"
            )
        url = extra.get("url")
        if not isinstance(url, str):
            raise ValueError(
                f"load format {LOAD_FORMAT}: say where the weights are with "
                '--model-loader-extra-config \'{"url": "nfs://host/path"}\''
            )
        self.url = url
        self.verify = bool(extra.get("verify", False))
        self.patience = float(extra.get("patience", PATIENCE_SECONDS))
        self.wait = None if extra.get("wait") is None else float(extra["wait"])
        self.inflight_bytes = int(extra.get("inflight_bytes", INFLIGHT_BYTES))

    def open(self) -> safe_open:
        """Opens the model; headers are checked, no data is read."""
        return safe_open(self.url, "pt", "cpu", patience=self.patience, wait=self.wait)

    def weights(
        self, model: Any, progress: bool
    ) -> Generator[tuple[str, Any], None, None]:
        """Names and torch tensors on the CPU, in the order of the files, of what
        ``model`` has a use for."""
        if secondary := [*getattr(model, "secondary_weights", ())]:
            raise ValueError(
                f"load format {LOAD_FORMAT}: {type(model).__name__} takes weights from "
                f"{len(secondary)} more places, which are not read"
            )
        unused = getattr(model, "is_unused_checkpoint_weight", None)
        with self.open() as opened:
            names = [name for name in opened.keys() if unused is None or not unused(name)]
            with opened.tensors(
                names,
                verify=self.verify,
                progress=progress,
                inflight_bytes=self.inflight_bytes,
            ) as tensors:
                yield from tensors


#: The loader class, once vLLM knows it.
_registered: Any = None


def register() -> None:
    """Makes the load format known to vLLM. It may be called more than once, as
    vLLM calls it in every process."""
    global _registered
    if _registered is not None:
        return
    from vllm.model_executor.model_loader import (
        BaseModelLoader,
        DefaultModelLoader,
        register_model_loader,
    )

    class ZgateModelLoader(BaseModelLoader):  # type: ignore[misc, unused-ignore]
        """Loads weights from an NFSv4.1 server, without a mount."""

        def __init__(self, load_config: Any) -> None:
            super().__init__(load_config)
            self.source = Source(load_config.model_loader_extra_config)

        def download_model(self, model_config: Any) -> None:
            """Nothing is downloaded: the model is opened once, so that what is
            wrong with it is said before the engine starts."""
            self.source.open().close()

        def get_all_weights(self, model_config: Any, model: Any) -> Iterable[tuple[str, Any]]:
            """Names and tensors of the model."""
            shown = bool(getattr(self.load_config, "use_tqdm_on_load", False))
            return self.source.weights(model, shown)

        def load_weights(self, model: Any, model_config: Any) -> None:
            """Brings the weights into ``model``, and has vLLM judge whether any
            are missing, as it does for its own format."""
            loaded = model.load_weights(self.get_all_weights(model_config, model))
            judge = getattr(DefaultModelLoader, "track_weights_loading", None)
            quantized = getattr(model_config, "quantization", None) is not None
            if loaded is not None and judge is not None and not quantized:
                judge(self, model, loaded)

    register_model_loader(LOAD_FORMAT)(ZgateModelLoader)
    _registered = ZgateModelLoader
