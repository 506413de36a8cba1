"""The load format, in the real vLLM where that is installed, or against the
pieces of its wheel that VLLM_WHEEL names."""

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import io
import os
import types
import unittest

import numpy
import published
import safetensors.numpy
from gateway import Gateway

GROUP = "vllm.general_plugins"


def missing():
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    if importlib.util.find_spec("vllm") is None and not os.environ.get("VLLM_WHEEL"):
        return "vllm is not installed, and VLLM_WHEEL names no wheel of it"
    return None


def load_config(**given):
    """As vLLM makes it, or with the fields of the wheel's class."""
    if Format.wheel is None:
        from vllm.config.load import LoadConfig

        return LoadConfig(**given)
    fields = Format.wheel.config_defaults()
    assert set(given) <= set(fields), f"LoadConfig has no {set(given) - set(fields)}"
    return types.SimpleNamespace(**{**fields, "model_loader_extra_config": {}, **given})


@unittest.skipIf(missing(), missing())
class Format(unittest.TestCase):
    wheel = None

    @classmethod
    def setUpClass(cls):
        import torch

        if importlib.util.find_spec("vllm") is None:
            cls.wheel = published.install(os.environ["VLLM_WHEEL"])
        cls.gateway = Gateway()
        (cls.gateway.models / "m").mkdir()
        random = numpy.random.default_rng(17)
        cls.arrays = {
            "up.weight": random.standard_normal((96, 32)).astype("f4"),
            "up.bias": random.standard_normal(96).astype("f4"),
            "down.weight": random.standard_normal((32, 96)).astype("f4"),
            "down.bias": random.standard_normal(32).astype("f4"),
        }
        sums = {
            f"sha256:{name}": hashlib.sha256(array.tobytes()).hexdigest()
            for name, array in cls.arrays.items()
        }
        file = cls.gateway.models / "m" / "model.safetensors"
        safetensors.numpy.save_file(cls.arrays, file, metadata=sums)

        class Tiny(torch.nn.Module):
            """A model in the shape of vLLM's: it takes (name, tensor) pairs."""

            def __init__(self):
                super().__init__()
                self.up = torch.nn.Linear(32, 96)
                self.down = torch.nn.Linear(96, 32)
                self.seen = []

            def load_weights(self, weights):
                parameters = dict(self.named_parameters())
                for name, tensor in weights:
                    parameters[name].data.copy_(tensor)
                    self.seen.append(name)
                return set(self.seen)

        cls.Tiny = Tiny

    @classmethod
    def tearDownClass(cls):
        cls.gateway.close()

    def loader(self, **extra):
        from vllm.model_executor.model_loader import get_model_loader

        from zgate.adapters import vllm as adapter

        adapter.register()
        adapter.register()
        config = load_config(
            load_format="zgate", model_loader_extra_config=extra, use_tqdm_on_load=False
        )
        return get_model_loader(config)

    def model_config(self):
        return types.SimpleNamespace(model="local", model_weights="", quantization=None)

    def test_vllm_finds_it(self):
        points = importlib.metadata.entry_points(group=GROUP, name="zgate")
        if not points:
            self.skipTest("the package is not installed here, only on the path")
        (point,) = points
        from zgate.adapters.vllm import register

        self.assertIs(point.load(), register)
        if self.wheel is not None:
            group = self.wheel.constant(published.PLUGINS, "DEFAULT_PLUGINS_GROUP")
            self.assertEqual(group, GROUP)
        else:
            from vllm.plugins import DEFAULT_PLUGINS_GROUP, load_plugins_by_group

            self.assertEqual(DEFAULT_PLUGINS_GROUP, GROUP)
            self.assertIs(load_plugins_by_group(GROUP)["zgate"], register)

    def test_the_command_line_takes_it(self):
        if self.wheel is not None:
            self.skipTest("vllm's own parser needs vllm")
        from vllm.engine.arg_utils import EngineArgs
        from vllm.utils.argparse_utils import FlexibleArgumentParser

        try:
            parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
        except RuntimeError as error:
            self.skipTest(f"vllm wants a device: {error}")
        words = ["--load-format", "zgate", "--model-loader-extra-config", '{"url": "nfs://h/m"}']
        arguments = EngineArgs.from_cli_args(parser.parse_args(words))
        self.assertEqual(arguments.load_format, "zgate")
        self.assertEqual(arguments.model_loader_extra_config, {"url": "nfs://h/m"})

    def test_weights_arrive(self):
        from vllm.model_executor.model_loader import BaseModelLoader

        loader = self.loader(url=self.gateway.url("m"))
        self.assertIsInstance(loader, BaseModelLoader)
        loader.download_model(self.model_config())
        model = self.Tiny()
        loader.load_weights(model, self.model_config())
        for name, parameter in model.named_parameters():
            array = parameter.detach().numpy()
            self.assertEqual(array.tobytes(), self.arrays[name].tobytes())

    def test_what_a_model_has_no_use_for_is_not_read(self):
        loader = self.loader(url=self.gateway.url("m"), verify=True, inflight_bytes=1 << 20)
        model = self.Tiny()
        model.is_unused_checkpoint_weight = lambda name: name.startswith("up.")
        names = [name for name, _ in loader.get_all_weights(self.model_config(), model)]
        self.assertEqual(sorted(names), ["down.bias", "down.weight"])

    def test_missing_weights_are_said(self):
        loader = self.loader(url=self.gateway.url("m"))
        model = self.Tiny()
        model.is_unused_checkpoint_weight = lambda name: name == "up.bias"
        with self.assertRaisesRegex(ValueError, "up.bias"):
            loader.load_weights(model, self.model_config())

    def test_what_is_wrong_is_said(self):
        with self.assertRaisesRegex(ValueError, "say where the weights are"):
            self.loader()
        with self.assertRaisesRegex(ValueError, "unknown keys .'speed'"):
            self.loader(url="nfs://h/m", speed=9)
        with self.assertRaises(FileNotFoundError):
            self.loader(url=self.gateway.url("none")).download_model(self.model_config())
        model = self.Tiny()
        model.secondary_weights = ["elsewhere"]
        with self.assertRaisesRegex(ValueError, "more places"):
            loader = self.loader(url=self.gateway.url("m"))
            loader.load_weights(model, self.model_config())

    def test_a_bar_is_shown(self):
        if importlib.util.find_spec("tqdm") is None:
            self.skipTest("tqdm is not installed")
        loader = self.loader(url=self.gateway.url("m"))
        loader.load_config.use_tqdm_on_load = True
        with contextlib.redirect_stderr(io.StringIO()) as shown:
            loader.load_weights(self.Tiny(), self.model_config())
        self.assertIn("GB/s", shown.getvalue())


if __name__ == "__main__":
    unittest.main()
