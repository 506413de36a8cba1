"""What carries the data: RDMA over the emulated fabric, and the choice where
there is no device."""

import os
import pathlib
import subprocess
import sys
import unittest

import numpy
import safetensors.numpy
import zgate
from gateway import Gateway, arrays

DEVICES = pathlib.Path("/sys/class/infiniband")
HAS_DEVICE = DEVICES.is_dir() and any(DEVICES.iterdir())

#: Loads over the emulated fabric in a process of its own, since the choice of
#: the fabric is the process's; prints what carried it and what the device wrote.
EMULATED = """
import sys, numpy, zgate
from zgate import _zgate
_zgate.emulate_rdma()
url, expected = sys.argv[1], numpy.load(sys.argv[2])
with zgate.safe_open(url, patience=10) as model:
    loaded = dict(model.tensors())
    for name in expected.files:
        assert loaded[name].tobytes() == expected[name].tobytes(), name
    device, socket, copied = model._model.placed()
    print(model.transport)
    print(device, socket, copied)
"""


class Transport(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.gateway = Gateway(rdma="emulated")
        cls.arrays = arrays()
        (cls.gateway.models / "m").mkdir()
        safetensors.numpy.save_file(cls.arrays, cls.gateway.models / "m" / "model.safetensors")

    @classmethod
    def tearDownClass(cls):
        cls.gateway.close()

    def test_off_says_so(self):
        with zgate.safe_open(self.gateway.url("m") + "?rdma=off") as model:
            self.assertIn("over TCP (rdma=off)", model.transport)
        with zgate.open_file(self.gateway.url("m/model.safetensors") + "?rdma=off") as pieces:
            self.assertIn("over TCP (rdma=off)", pieces.transport)

    @unittest.skipIf(HAS_DEVICE, "this machine has an RDMA device")
    def test_without_a_device_auto_takes_tcp_and_says_why(self):
        with zgate.safe_open(self.gateway.url("m")) as model:
            said = model.transport
            self.assertRegex(said, r"over TCP \(rdma=auto: .+")
            self.assertNotIn("\n", said)

    @unittest.skipIf(HAS_DEVICE, "this machine has an RDMA device")
    def test_without_a_device_on_fails_and_says_why(self):
        for call in (zgate.load_file, zgate.open_file, zgate.list):
            with self.assertRaisesRegex(ConnectionError, "rdma=on: .*(rdma-core|rdma_ucm|device)"):
                call(self.gateway.url("m") + "?rdma=on")

    def test_the_emulated_device_places_everything(self):
        expected = pathlib.Path(self.gateway.dir.name, "expected.npz")
        numpy.savez(expected, **self.arrays)
        url = self.gateway.url("m") + f"?rdma=on&rdma_port={self.gateway.rdma_port}&connections=2"
        child = subprocess.run(
            [sys.executable, "-c", EMULATED, url, str(expected)],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )
        self.assertEqual(child.returncode, 0, child.stderr)
        transport, placed = child.stdout.splitlines()
        self.assertIn("2 over RDMA (rdma=on)", transport)
        device, socket, copied = map(int, placed.split())
        self.assertGreaterEqual(device, sum(array.nbytes for array in self.arrays.values()))
        self.assertEqual((socket, copied), (0, 0))


if __name__ == "__main__":
    unittest.main()
