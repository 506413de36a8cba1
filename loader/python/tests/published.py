"""What vLLM publishes for plug-ins, taken from its own wheel: the pieces of its
source that a load format meets, run without the rest of it.

vLLM itself needs gigabytes of other packages and a device. Where it is not
installed, VLLM_WHEEL names its wheel (``pip download --no-deps vllm``).
"""

import abc
import ast
import logging
import sys
import types
import zipfile

LOADERS = "vllm/model_executor/model_loader/__init__.py"
BASE = "vllm/model_executor/model_loader/base_loader.py"
DEFAULT = "vllm/model_executor/model_loader/default_loader.py"
PLUGINS = "vllm/plugins/__init__.py"
CONFIG = "vllm/config/load.py"


class Wheel:
    """Source files of a wheel, and pieces of them."""

    def __init__(self, path):
        with zipfile.ZipFile(path) as wheel:
            names = (LOADERS, BASE, DEFAULT, PLUGINS, CONFIG)
            self.trees = {name: ast.parse(wheel.read(name).decode()) for name in names}
            metadata = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
            lines = wheel.read(metadata).decode().splitlines()
        self.version = next(line[9:] for line in lines if line.startswith("Version: "))

    def piece(self, file, name):
        """The definition of ``name`` at the top of a file."""
        for node in self.trees[file].body:
            if getattr(node, "name", None) == name:
                return node
            targets = getattr(node, "targets", [getattr(node, "target", None)])
            if any(getattr(target, "id", None) == name for target in targets):
                return node
        raise LookupError(f"vLLM {self.version}: no {name} in {file}")

    def constant(self, file, name):
        return ast.literal_eval(self.piece(file, name).value)

    def run(self, file, names, space):
        """Runs the definitions of ``names``, without decorators and
        annotations, in ``space``."""
        for name in names:
            node = self.piece(file, name)
            for inner in ast.walk(node):
                if isinstance(inner, ast.FunctionDef):
                    inner.decorator_list = [
                        mark
                        for mark in inner.decorator_list
                        if getattr(mark, "id", "") == "abstractmethod"
                    ]
                    inner.returns = None
                    for argument in [*inner.args.args, *inner.args.kwonlyargs]:
                        argument.annotation = None
            exec(compile(ast.Module([node], []), file, "exec"), space)

    def config_defaults(self):
        """Names of LoadConfig's fields and the defaults that are literals."""
        fields = {}
        for node in self.piece(CONFIG, "LoadConfig").body:
            if isinstance(node, ast.AnnAssign):
                try:
                    fields[node.target.id] = ast.literal_eval(node.value)
                except ValueError:
                    fields[node.target.id] = None
        return fields


def install(path):
    """Makes ``vllm.model_executor.model_loader`` out of the wheel's pieces, and
    returns the wheel."""
    wheel = Wheel(path)
    space = {
        "ABC": abc.ABC,
        "abstractmethod": abc.abstractmethod,
        "logger": logging.getLogger("vllm"),
        "_LOAD_FORMAT_TO_MODEL_LOADER": {},
    }
    wheel.run(BASE, ["BaseModelLoader"], space)
    wheel.run(LOADERS, ["register_model_loader", "get_model_loader"], space)
    # The default format's own judgement of what is missing.
    track = next(
        node
        for node in wheel.piece(DEFAULT, "DefaultModelLoader").body
        if getattr(node, "name", "") == "track_weights_loading"
    )
    wheel.trees[DEFAULT].body.append(track)
    space["BaseKVCacheMethod"] = type("BaseKVCacheMethod", (), {})
    space["_CONFIG_BUILT_PARAMS"] = wheel.constant(DEFAULT, "_CONFIG_BUILT_PARAMS")
    wheel.run(DEFAULT, ["track_weights_loading"], space)
    space["DefaultModelLoader"] = type(
        "DefaultModelLoader",
        (space["BaseModelLoader"],),
        {"track_weights_loading": space["track_weights_loading"]},
    )
    for name in ("vllm", "vllm.model_executor", "vllm.model_executor.model_loader"):
        sys.modules[name] = types.ModuleType(name)
    vars(sys.modules["vllm.model_executor.model_loader"]).update(space)
    return wheel
