"""Every element type, bit for bit, in NumPy, torch and DLPack; and the
package's own types."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy
import safetensors.numpy
import zgate
from gateway import Gateway

HAS_TORCH = importlib.util.find_spec("torch") is not None
HAS_ML_DTYPES = importlib.util.find_spec("ml_dtypes") is not None
HAS_MYPY = importlib.util.find_spec("mypy") is not None

#: Type -> bits of an element.
WIDTHS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8,
    "U16": 16, "I16": 16, "F16": 16, "BF16": 16, "U32": 32, "I32": 32, "F32": 32,
    "U64": 64, "I64": 64, "F64": 64, "C64": 64, "F4": 4,
}  # fmt: skip
ML_DTYPES = {"BF16", "F8_E4M3", "F8_E5M2", "F8_E8M0"}
SHAPE = (6, 64)


def every_type():
    """A file with every type, and the bytes of each tensor: all bit patterns,
    NaNs among them."""
    random = numpy.random.default_rng(11)
    header, data, raws = {}, b"", {}
    for dtype, bits in WIDTHS.items():
        length = SHAPE[0] * SHAPE[1] * bits // 8
        high = 2 if dtype == "BOOL" else 256
        raw = random.integers(0, high, length).astype("u1").tobytes()
        header[dtype] = {
            "dtype": dtype,
            "shape": list(SHAPE),
            "data_offsets": [len(data), len(data) + length],
        }
        data, raws[dtype] = data + raw, raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data, raws


class Types(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.gateway = Gateway()
        folder = cls.gateway.models / "m"
        folder.mkdir()
        raw, cls.raws = every_type()
        cls.file = folder / "model.safetensors"
        cls.file.write_bytes(raw)
        cls.url = cls.gateway.url("m")

    @classmethod
    def tearDownClass(cls):
        cls.gateway.close()

    def test_numpy_types_as_safetensors_has_them(self):
        with zgate.safe_open(self.url) as model:
            with safetensors.safe_open(self.file, "np") as local:
                for dtype in WIDTHS:
                    if dtype == "F4" or (dtype in ML_DTYPES and not HAS_ML_DTYPES):
                        with self.assertRaises(TypeError):
                            model.get_tensor(dtype)
                        continue
                    array = model.get_tensor(dtype)
                    self.assertEqual(array.shape, SHAPE)
                    self.assertEqual(array.tobytes(), self.raws[dtype], dtype)
                    self.compare(local, dtype, array)

    def compare(self, local, dtype, array):
        try:
            theirs = local.get_tensor(dtype)
        except Exception:
            # safetensors has some types in torch only.
            self.assertIn(dtype, ML_DTYPES | {"C64", "F4"})
            return
        if isinstance(theirs, numpy.ndarray):
            self.assertEqual(theirs.dtype, array.dtype)
            self.assertEqual(theirs.tobytes(), array.tobytes())

    def test_every_type_as_plain_bytes(self):
        loaded = zgate.load_file(self.url, framework="dlpack")
        for dtype, raw in self.raws.items():
            self.assertEqual((loaded[dtype].dtype, loaded[dtype].shape), (dtype, SHAPE))
            self.assertEqual(bytes(memoryview(loaded[dtype]._buffer)), raw)

    def test_numpy_takes_what_it_knows_through_dlpack(self):
        loaded = zgate.load_file(self.url, framework="dlpack")
        for dtype in set(WIDTHS) - ML_DTYPES - {"F4"}:
            array = numpy.from_dlpack(loaded[dtype])
            self.assertEqual((array.shape, array.dtype), (SHAPE, loaded[dtype].numpy().dtype))
            self.assertEqual(array.tobytes(), self.raws[dtype])
        with self.assertRaisesRegex(BufferError, "F4"):
            loaded["F4"].__dlpack__()

    @unittest.skipUnless(HAS_TORCH, "torch is not installed")
    def test_torch_types_as_safetensors_has_them(self):
        import safetensors.torch
        import torch

        theirs = safetensors.torch.load_file(self.file)
        loaded = zgate.load_file(self.url, framework="pt")
        for dtype in WIDTHS:
            ours, other = loaded[dtype], theirs[dtype]
            self.assertEqual((ours.dtype, ours.shape), (other.dtype, other.shape), dtype)
            same = torch.equal(ours.view(torch.uint8), other.view(torch.uint8))
            self.assertTrue(same, dtype)

    @unittest.skipUnless(HAS_TORCH, "torch is not installed")
    def test_torch_takes_dlpack_without_a_copy(self):
        import torch

        loaded = zgate.load_file(self.url, framework="dlpack")
        taken = 0
        for dtype, tensor in loaded.items():
            try:
                ours = torch.from_dlpack(tensor)
            except (BufferError, RuntimeError):
                # Versions of torch know more and more of the small floats.
                self.assertTrue(dtype == "F4" or dtype.startswith("F8"), dtype)
                continue
            taken += 1
            self.assertEqual(ours.data_ptr(), tensor._buffer.address)
            self.assertEqual(ours.data_ptr(), tensor.torch().data_ptr())
            self.assertEqual(ours.dtype, tensor.torch().dtype)
            self.assertEqual(tuple(ours.shape), SHAPE)
        self.assertGreaterEqual(taken, 12)

    @unittest.skipUnless(HAS_TORCH, "torch is not installed")
    def test_torch_tensors_own_their_memory(self):
        import torch

        with zgate.safe_open(self.url, "pt") as model:
            tensor = model.get_tensor("F32")
            empty = model.get_slice("I64").part(1, 1, 2)
        del model
        tensor.zero_()
        self.assertEqual(tensor.count_nonzero().item(), 0)
        self.assertEqual(empty.dtype, torch.int64)
        self.assertEqual(tuple(empty.shape), (6, 32))

    @unittest.skipIf(zgate.why_no_cuda(), zgate.why_no_cuda())
    @unittest.skipUnless(HAS_TORCH, "torch is not installed")
    def test_cuda_tensors_are_the_same(self):
        import torch

        host = zgate.load_file(self.url, framework="pt")
        for device in ("cuda", f"cuda:{torch.cuda.device_count() - 1}"):
            for name, tensor in zgate.load_file(self.url, device).items():
                self.assertEqual(tensor.device.type, "cuda")
                back = tensor.view(torch.uint8).cpu()
                self.assertTrue(torch.equal(back, host[name].view(torch.uint8)), name)

    def test_import_needs_nothing_but_numpy(self):
        code = (
            "import sys, zgate\n"
            "assert not {'torch', 'tqdm', 'vllm', 'fastsafetensors'} & set(sys.modules)\n"
        )
        subprocess.run([sys.executable, "-c", code], check=True)


@unittest.skipUnless(HAS_MYPY, "mypy is not installed")
class Annotations(unittest.TestCase):
    """The package is typed, and its stubs say what there is."""

    def run_module(self, *arguments):
        with tempfile.TemporaryDirectory() as cache:
            environment = {**os.environ, "MYPY_CACHE_DIR": cache}
            done = subprocess.run(
                [sys.executable, "-m", *arguments],
                capture_output=True, text=True, env=environment, cwd=cache,
            )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_mypy_accepts_the_package_and_its_use(self):
        # What the adapters plug into need not be there.
        lenient = ["--allow-subclassing-any", "--allow-untyped-decorators"]
        lenient += ["--no-warn-unused-ignores", "--follow-imports=silent"]
        strict = ["mypy", "--strict", "--ignore-missing-imports"]
        self.run_module(*strict, *lenient, "-p", "zgate")
        self.run_module(*strict, str(pathlib.Path(__file__).parent / "typed_use.py"))

    def test_stubs_say_what_the_native_module_has(self):
        # Python shows a native type's buffer protocol from 3.12 on.
        with tempfile.NamedTemporaryFile("w") as hidden:
            hidden.write(r"zgate\._zgate\.Buffer\.__buffer__" + "\n")
            hidden.flush()
            options = ["--ignore-disjoint-bases", "--ignore-unused-allowlist"]
            self.run_module("mypy.stubtest", *options, "--allowlist", hidden.name, "zgate._zgate")

    def test_every_public_name_is_described(self):
        for name in zgate.__all__:
            if name != "__version__":
                self.assertTrue(getattr(zgate, name).__doc__, name)


if __name__ == "__main__":
    unittest.main()
