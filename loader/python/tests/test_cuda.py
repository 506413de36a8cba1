"""Tensors in GPU memory, with the stand-in for the CUDA driver that the Rust
tests have; torch itself on a device where there is one (test_types)."""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import numpy
import safetensors.numpy
import zgate
from gateway import Gateway, arrays

SOURCE = pathlib.Path(__file__).parents[2] / "cuda" / "tests" / "fake" / "libcuda.c"

#: The driver is the process's: each program has one of its own.
BEGIN = """
import ctypes, gc, sys, numpy, zgate
from zgate import _zgate
library, url, expected = sys.argv[1], sys.argv[2], numpy.load(sys.argv[3])
_zgate.load_cuda(library)
def same(name, tensor):
    assert tensor.numpy().tobytes() == expected[name].tobytes(), name
"""

LOAD = """
assert zgate.why_no_cuda("cuda:1") is None
assert "2 CUDA devices" in zgate.why_no_cuda("cuda:2")
loaded = zgate.load_file(url, "cuda:1", framework="dlpack", verify=True)
assert sorted(loaded) == sorted(expected.files)
for name, tensor in loaded.items():
    same(name, tensor)
    assert tensor.device == "cuda:1" and tensor.__dlpack_device__() == (2, 1)
with zgate.safe_open(url, "dlpack", "cuda:1") as model:
    part = model.get_slice("a.weight").part(1, 1, 2)
    assert part.numpy().tobytes() == expected["a.weight"][:, 192:].tobytes()
with zgate.stream(url, 1, framework="dlpack") as tensors:
    for name, tensor in tensors:
        same(name, tensor)
del loaded, part, tensors, tensor
gc.collect()
"""

CAPSULE = """
class Head(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("kind", ctypes.c_int32), ("number", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64))]
with zgate.safe_open(url, "dlpack", "cuda") as model:
    tensor = model.get_tensor("a.weight")
address = tensor._buffer.address
capsule = tensor.__dlpack__(stream=1)
get = ctypes.pythonapi.PyCapsule_GetPointer
get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
head = Head.from_address(get(capsule, b"dltensor"))
assert (head.kind, head.number, head.data) == (2, 0, address)
assert (head.code, head.bits, head.lanes) == (2, 32, 1)
assert [head.shape[i] for i in range(head.ndim)] == [256, 384]
for wrong in (lambda: memoryview(tensor._buffer), lambda: tensor.__dlpack__(dl_device=(1, 0))):
    try:
        wrong()
    except BufferError as error:
        assert "GPU" in str(error) or "cuda:0" in str(error), error
    else:
        raise AssertionError("host code got device memory")
# The capsule has a share of the memory, which goes with it.
del tensor
gc.collect()
del capsule
gc.collect()
"""

FAIL = """
try:
    zgate.load_file(url, "cuda", framework="dlpack")
except zgate.DeviceError as error:
    assert "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY" in str(error), error
else:
    raise AssertionError("loaded to memory there is not")
"""

DIRECT = """
_zgate.emulate_rdma()
with zgate.safe_open(url + sys.argv[4], "dlpack", "cuda") as model:
    load = model._model.start(None, None, 1 << 28, 16, False, 0)
    for name, dtype, shape, buffer in load:
        placed = load.placement()
        assert bytes(buffer.to_host()) == expected[name].tobytes(), name
    assert placed[0] > 0 and placed[1:] == (0, "dmabuf"), placed
del load, buffer
gc.collect()
"""


@unittest.skipUnless(shutil.which("cc"), "no C compiler for the stand-in")
class Cuda(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.gateway = Gateway(rdma="emulated")
        (cls.gateway.models / "m").mkdir()
        file = cls.gateway.models / "m" / "model.safetensors"
        safetensors.numpy.save_file(arrays(), file)
        sum_of_file = hashlib.sha256(file.read_bytes()).hexdigest()
        (file.parent / "SHA256SUMS").write_text(f"{sum_of_file}  {file.name}\n")
        cls.expected = pathlib.Path(cls.gateway.dir.name, "expected.npz")
        numpy.savez(cls.expected, **arrays())

    @classmethod
    def tearDownClass(cls):
        cls.gateway.close()

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)
        self.library = self.dir / "libcuda.so"
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-pthread", f'-DDIR="{self.dir}"', "-o", self.library, SOURCE],
            check=True,
        )

    def run_program(self, program, *more):
        child = subprocess.run(
            [sys.executable, "-c", BEGIN + program, self.library, self.gateway.url("m"), self.expected, *more],
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )
        self.assertEqual(child.returncode, 0, child.stderr)
        calls = [line.split()[0] for line in (self.dir / "log").read_text().splitlines()]
        for taken, given in (("alloc", "free"), ("register", "unregister"), ("stream", "unstream")):
            self.assertEqual(calls.count(taken), calls.count(given), taken)
        return calls

    def test_tensors_come_there_and_memory_is_given_back(self):
        calls = self.run_program(LOAD)
        self.assertGreater(calls.count("alloc"), 0)
        self.assertIn("2d", calls)

    def test_capsules_say_where_the_memory_is(self):
        self.run_program(CAPSULE)

    def test_what_the_driver_refuses_is_said(self):
        (self.dir / "fail").write_text("cuMemAlloc_v2 2")
        self.run_program(FAIL)

    def test_over_rdma_nothing_goes_through_host_memory(self):
        query = f"?rdma=on&rdma_port={self.gateway.rdma_port}"
        calls = self.run_program(DIRECT, query)
        self.assertIn("dmabuf", calls)
        self.assertNotIn("register", calls)

    def test_torch_is_asked_for_where_it_is_missing(self):
        if __import__("importlib.util").util.find_spec("torch"):
            self.skipTest("torch is installed")
        program = """
try:
    zgate.safe_open(url, device="cuda")
except zgate.DeviceError as error:
    assert "pip install torch" in str(error), error
else:
    raise AssertionError
"""
        self.run_program(program)


if __name__ == "__main__":
    unittest.main()
