"""What is wrong is said: addresses, files, servers that go away."""

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import types
import unittest

import numpy
import safetensors.numpy
import zgate
from gateway import Gateway, Proxy

BAD_ADDRESSES = [
    ("", "nfs://"),
    ("http://nas/m", "does not begin with nfs://"),
    ("nfs://nas", "path is missing"),
    ("nfs://nas:0x1/m", "nas:0x1"),
    ("nfs://nas/m?rdma=maybe", "rdma=maybe: must be auto, on or off"),
    ("nfs://nas/m?connections=0", "connections=0"),
    ("nfs://nas/m?speed=high", "speed is not an option"),
    ("nfs://nas/%zz", "two hex digits"),
]


def safetensors_file(header, data=b"", length=None):
    raw = header if isinstance(header, bytes) else header.encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


#: What is wrong with a file, and how it is said.
BAD_FILES = {
    "empty": (b"", "shorter than eight bytes"),
    "short": (b"\x01\x02\x03", "shorter than eight bytes"),
    "long-header": (safetensors_file("{}", length=1 << 40), "longer than the format allows"),
    "header-beyond-the-end": (safetensors_file("{}", length=4096), "the header is cut short"),
    "no-json": (safetensors_file("not json at all"), "at line 1 column"),
    "no-object": (safetensors_file("[1, 2]"), "sequence"),
    "no-such-type": (
        safetensors_file('{"a":{"dtype":"F31","shape":[2],"data_offsets":[0,8]}}', b"12345678"),
        "type F31 is unknown",
    ),
    "wrong-length": (
        safetensors_file('{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}', b"12345678"),
        "tensor a has 8 bytes; its shape needs 12",
    ),
    "overlap": (
        safetensors_file(
            '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},'
            '"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}',
            b"123456781234",
        ),
        "tensor b does not follow",
    ),
    "truncated": (
        safetensors_file('{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}', b"12345678"),
        "8 bytes of data; the header describes 16",
    ),
}


class Errors(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.gateway = Gateway()
        (cls.gateway.models / "m").mkdir()
        random = numpy.random.default_rng(3)
        cls.arrays = {f"layer.{i}": random.integers(0, 255, 4 << 20, "u1") for i in range(12)}
        safetensors.numpy.save_file(cls.arrays, cls.gateway.models / "m" / "model.safetensors")

    @classmethod
    def tearDownClass(cls):
        cls.gateway.close()

    def test_bad_addresses(self):
        for address, said in BAD_ADDRESSES:
            with self.subTest(address), self.assertRaises(ValueError) as raised:
                zgate.safe_open(address)
            self.assertIn(said, str(raised.exception))

    def test_bad_files(self):
        for name, (raw, said) in BAD_FILES.items():
            folder = self.gateway.models / name
            folder.mkdir()
            (folder / "model.safetensors").write_bytes(raw)
            with self.subTest(name), self.assertRaises(ValueError) as raised:
                zgate.load_file(self.gateway.url(name))
            self.assertIn("model.safetensors", str(raised.exception))
            self.assertIn(said, str(raised.exception))

    def test_what_is_not_there(self):
        (self.gateway.models / "bare").mkdir()
        for path in ("bare", "nothing", "m/nothing.safetensors"):
            with self.subTest(path), self.assertRaises(FileNotFoundError) as raised:
                zgate.load_file(self.gateway.url(path))
            self.assertIn(path.split("/")[-1], str(raised.exception))
        with self.assertRaises(FileNotFoundError):
            zgate.open_file(self.gateway.url("m/nothing"))
        with self.assertRaises(FileNotFoundError):
            zgate.list(self.gateway.url("nothing"))
        with self.assertRaises(OSError):
            zgate.list(self.gateway.url("m/model.safetensors"))

    def test_index_that_lies(self):
        folder = self.gateway.models / "lying"
        folder.mkdir()
        (folder / "model.safetensors.index.json").write_text(
            '{"weight_map": {"a": "one.safetensors"}}'
        )
        with self.assertRaisesRegex(FileNotFoundError, "one.safetensors"):
            zgate.load_file(self.gateway.url("lying"))
        safetensors.numpy.save_file({"b": numpy.zeros(3)}, folder / "one.safetensors")
        with self.assertRaisesRegex(ValueError, "no tensor a"):
            zgate.load_file(self.gateway.url("lying"))

    def test_parts_there_cannot_be(self):
        for ranks in ((2, 2), (-1, 2), (0, 0)):
            with self.subTest(ranks), self.assertRaisesRegex(ValueError, "rank"):
                zgate.stream(self.gateway.url("m"), ranks=ranks)

    def test_devices_that_are_not_there(self):
        with self.assertRaisesRegex(ValueError, "'cpu', 'cuda' or 'cuda:N'"):
            zgate.load_file(self.gateway.url("m"), "GPU zero")
        with self.assertRaisesRegex(ValueError, "needs framework='pt'"):
            zgate.load_file(self.gateway.url("m"), 0, framework="np")
        reason = zgate.why_no_cuda("cuda:77")
        self.assertIsNotNone(reason)
        with self.assertRaises(zgate.DeviceError) as raised:
            # Said before anything is connected to.
            zgate.load_file("nfs://127.0.0.1:1/m", "cuda:77")
        self.assertEqual(str(raised.exception), f"device 'cuda:77': {reason}")

    def test_nobody_listens(self):
        begun = time.monotonic()
        with self.assertRaisesRegex(ConnectionError, "127.0.0.1:1"):
            zgate.load_file("nfs://127.0.0.1:1/m", patience=0.3)
        with self.assertRaisesRegex(ConnectionError, "refused connections.*wait=SECONDS"):
            zgate.list("nfs://127.0.0.1:1/m", wait=0.3)
        self.assertLess(time.monotonic() - begun, 10)

    def test_an_absent_path_names_the_next_step(self):
        parent = self.gateway.url("m")
        with self.assertRaises(FileNotFoundError) as raised:
            zgate.load_file(f"{parent}/absent/model")
        for part in ("/models/m/absent/model does not exist", "/models/m exists", f'list("{parent}")'):
            self.assertIn(part, str(raised.exception))

    def test_connections_that_are_cut_again_and_again(self):
        proxy = Proxy(self.gateway.port)
        self.addCleanup(proxy.close)
        proxy.cut_after_bytes = 3 << 20
        loaded = zgate.load_file(proxy.url("m", "?connections=2"))
        self.assertGreater(proxy.cuts, 5)
        for name, array in self.arrays.items():
            self.assertEqual(loaded[name].tobytes(), array.tobytes())

    def test_a_server_that_goes_away_for_good(self):
        proxy = Proxy(self.gateway.port)
        proxy.close_after_bytes = 40 << 20
        begun = time.monotonic()
        taken = {}
        with self.assertRaises(ConnectionError) as raised:
            with zgate.safe_open(proxy.url("m"), patience=1.0) as model:
                with model.tensors() as tensors:
                    for name, tensor in tensors:
                        taken[name] = tensor
        self.assertIn(f"127.0.0.1:{proxy.port}", str(raised.exception))
        self.assertIn("model.safetensors", str(raised.exception))
        self.assertLess(time.monotonic() - begun, 30)
        self.assertLess(len(taken), len(self.arrays))
        for name, tensor in taken.items():
            self.assertEqual(tensor.tobytes(), self.arrays[name].tobytes())

    def test_interrupt_ends_a_wait(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            code = (
                # Whoever runs this in the background may ignore interrupts.
                "import signal, sys, zgate\n"
                "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
                "print('go', flush=True)\n"
                f"try: zgate.load_file('nfs://127.0.0.1:{port}/m', wait=120)\n"
                "except KeyboardInterrupt: sys.exit(42)\n"
            )
            child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
            child.stdout.readline()
            time.sleep(0.5)
            child.send_signal(signal.SIGINT)
            try:
                self.assertEqual(child.wait(10), 42)
            finally:
                child.kill()
                child.stdout.close()

    def test_a_child_made_by_fork_opens_for_itself(self):
        url = self.gateway.url("m")
        with zgate.safe_open(url) as model:
            model.get_tensor("layer.0")
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    try:
                        model.keys()
                    except RuntimeError:
                        fresh = zgate.load_file(url, patience=10)
                        same = fresh["layer.1"].tobytes() == self.arrays["layer.1"].tobytes()
                        code = 0 if same else 2
                finally:
                    os._exit(code)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
            after = model.get_tensor("layer.2")
        self.assertEqual(after.tobytes(), self.arrays["layer.2"].tobytes())

    def test_a_child_made_by_fork_does_not_wait_for_its_parents_loads(self):
        with (
            zgate.safe_open(self.gateway.url("m")) as model,
            model.tensors(inflight_bytes=8 << 20) as tensors,
            zgate.open_file(self.gateway.url("m/model.safetensors")) as pieces,
        ):
            begun = {name for name, _ in (next(tensors),)}
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    # A wait for ever ends here.
                    signal.alarm(30)
                    try:
                        for _ in tensors:
                            pass
                    except RuntimeError:
                        code = 2
                    try:
                        for _ in pieces:
                            pass
                    except ValueError:
                        code -= 2
                    tensors.close()
                    pieces.close()
                finally:
                    os._exit(code)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
            begun.update(name for name, _ in tensors)
            self.assertEqual(begun, set(self.arrays))
            self.assertEqual(sum(len(piece) for piece in pieces), pieces.total_bytes)


class ChangedLoad:
    """A load whose end says that the file was changed."""

    total_bytes = 0
    done_bytes = 0

    def __iter__(self):
        yield "a", "U8", [0], b""
        raise ValueError("m.safetensors: the file was changed while it was read")

    def close(self):
        pass


class Changed(unittest.TestCase):
    def test_one_tensor_of_a_changed_file_is_not_handed_out(self):
        model = zgate.safe_open.__new__(zgate.safe_open)
        model._framework, model._device = "np", "cpu"
        model._model = types.SimpleNamespace(
            start=lambda *_: ChangedLoad(), info=lambda _: ("U8", [0], 0, "m.safetensors")
        )
        with self.assertRaisesRegex(ValueError, "changed"):
            model.get_tensor("a")
        with self.assertRaisesRegex(ValueError, "changed"):
            model.get_slice("a").part(0, 0, 1)


class Waiting(unittest.TestCase):
    """The interpreter runs on while a load waits."""

    def test_other_threads_run(self):
        gateway = Gateway()
        self.addCleanup(gateway.close)
        (gateway.models / "m").mkdir()
        data = {"a": numpy.ones(1 << 22, "u1")}
        safetensors.numpy.save_file(data, gateway.models / "m" / "model.safetensors")
        proxy = Proxy(gateway.port)
        self.addCleanup(proxy.close)
        with zgate.safe_open(proxy.url("m")) as model:
            proxy.flowing.clear()
            ended = threading.Event()
            loaded = []

            def load():
                loaded.append(model.get_tensor("a"))
                ended.set()

            threading.Thread(target=load).start()
            steps = 0
            until = time.monotonic() + 1.0
            while time.monotonic() < until:
                steps += 1
            self.assertFalse(ended.is_set())
            self.assertGreater(steps, 10_000)
            proxy.flowing.set()
            self.assertTrue(ended.wait(20))
        self.assertEqual(loaded[0].tobytes(), data["a"].tobytes())


if __name__ == "__main__":
    unittest.main()
