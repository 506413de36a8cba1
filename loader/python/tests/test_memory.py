"""Who owns memory, how much of it there is, and many threads."""

import gc
import pathlib
import subprocess
import sys
import threading
import unittest

import numpy
import safetensors.numpy
import zgate
from gateway import Gateway

MIB = 1 << 20

#: Loads as it is told and says how much memory that took at most, in bytes.
MEASURED = """
import sys, zgate
def peak():
    for line in open('/proc/self/status'):
        if line.startswith('VmHWM:'):
            return int(line.split()[1]) * 1024
url, how = sys.argv[1:]
with zgate.safe_open(url, 'dlpack') as model:
    model.keys()
    before = peak()
    if how == 'all':
        kept = dict(model.tensors(inflight_bytes=32 << 20))
    else:
        with model.tensors(inflight_bytes=32 << 20) as tensors:
            for name, tensor in tensors:
                del tensor
print(peak() - before)
"""


def resident_bytes():
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def address(array):
    return array.__array_interface__["data"][0]


class Memory(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.gateway = Gateway()
        (cls.gateway.models / "m").mkdir()
        random = numpy.random.default_rng(5)
        cls.arrays = {f"layer.{i}": random.integers(0, 255, 8 * MIB, "u1") for i in range(24)}
        safetensors.numpy.save_file(cls.arrays, cls.gateway.models / "m" / "model.safetensors")
        cls.url = cls.gateway.url("m")

    @classmethod
    def tearDownClass(cls):
        cls.gateway.close()

    def test_tensors_outlive_everything(self):
        gateway = Gateway()
        (gateway.models / "m").mkdir()
        small = {"a": numpy.arange(100_000), "b": numpy.arange(7)}
        safetensors.numpy.save_file(small, gateway.models / "m" / "model.safetensors")
        with zgate.safe_open(gateway.url("m"), "dlpack") as model:
            tensor = model.get_tensor("a")
            (_, other), = model.tensors(["b"])
        del model
        gateway.close()
        view = numpy.from_dlpack(tensor)
        del tensor
        gc.collect()
        numpy.testing.assert_array_equal(view, small["a"])
        numpy.testing.assert_array_equal(other.numpy(), small["b"])

    def test_nothing_is_copied(self):
        with zgate.safe_open(self.url, "dlpack") as model:
            tensor = model.get_tensor("layer.3")
        self.assertEqual((tensor.dtype, tensor.shape, tensor.nbytes), ("U8", (8 * MIB,), 8 * MIB))
        array = tensor.numpy()
        self.assertEqual(address(array), tensor._buffer.address)
        self.assertEqual(address(numpy.from_dlpack(tensor)), address(array))
        self.assertEqual(tensor.__dlpack_device__(), (1, 0))
        # All of them are the same bytes.
        array[0] ^= 0xFF
        self.assertEqual(numpy.from_dlpack(tensor)[0], array[0])
        with self.assertRaises(BufferError):
            tensor.__dlpack__(copy=True)
        with self.assertRaises(BufferError):
            tensor.__dlpack__(dl_device=(2, 0))

    def test_tensors_share_no_bytes(self):
        loaded = zgate.load_file(self.url)
        loaded["layer.7"][:] = 0
        for name in ("layer.6", "layer.8"):
            self.assertEqual(loaded[name].tobytes(), self.arrays[name].tobytes())

    def test_capsules_nobody_takes_are_released(self):
        with zgate.safe_open(self.url, "dlpack") as model:
            model.get_tensor("layer.0").__dlpack__()
            before = resident_bytes()
            for name in [*model.keys()] * 2:
                model.get_tensor(name).__dlpack__()
                numpy.from_dlpack(model.get_tensor(name))
        # Either of the two would keep 384 MiB; threads of the allocator and of loads keep some.
        self.assertLess(resident_bytes() - before, 192 * MIB)

    def test_memory_is_given_back(self):
        zgate.load_file(self.url)
        before = resident_bytes()
        for _ in range(4):
            loaded = zgate.load_file(self.url)
            del loaded
        self.assertLess(resident_bytes() - before, 64 * MIB)

    def measured(self, how):
        command = [sys.executable, "-c", MEASURED, self.url, how]
        return int(subprocess.run(command, check=True, capture_output=True).stdout)

    def test_peak_memory_is_the_model_and_little_more(self):
        model = sum(array.nbytes for array in self.arrays.values())
        self.assertLess(self.measured("all"), model + 64 * MIB)

    def test_peak_memory_of_a_stream_is_bounded(self):
        # 192 MiB pass through; 32 MiB may wait, and one region beside them.
        self.assertLess(self.measured("stream"), 120 * MIB)

    def test_many_threads_load_at_once(self):
        results, errors = {}, []

        def load(number):
            try:
                if number % 2:
                    results[number] = zgate.load_file(self.url)
                else:
                    results[number] = dict(zgate.stream(self.url, ranks=(0, 2)))
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=load, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        self.assertEqual(errors, [])
        self.assertEqual(sorted(results), list(range(6)), "not all have ended")
        for number, loaded in results.items():
            self.assertEqual(sorted(loaded), sorted(self.arrays))
            for name, array in self.arrays.items():
                wanted = array if number % 2 else array[: len(array) // 2]
                self.assertEqual(loaded[name].tobytes(), wanted.tobytes())

    def test_threads_share_one_model(self):
        right = []
        with zgate.safe_open(self.url) as model:

            def check(name):
                if model.get_tensor(name).tobytes() == self.arrays[name].tobytes():
                    right.append(name)

            threads = [threading.Thread(target=check, args=(name,)) for name in self.arrays]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
        self.assertEqual(sorted(right), sorted(self.arrays))

    def test_opening_often_leaves_nothing_behind(self):
        # No sessions and no open files of clients that are gone.
        for _ in range(150):
            with zgate.safe_open(self.url + "?connections=1") as model:
                model.keys()
        zgate.load_file(self.url)

    def test_a_load_that_is_left_stops(self):
        with zgate.stream(self.url) as tensors:
            name, first = next(tensors)
        self.assertEqual(first.tobytes(), self.arrays[name].tobytes())
        self.assertEqual(next(tensors, None), None)
        with zgate.open_file(self.gateway.url("m/model.safetensors")) as pieces:
            next(pieces)
            self.assertGreater(pieces.done_bytes, 0)
        self.assertIsNone(next(pieces, None))

    def test_progress_is_told(self):
        told = []
        zgate.load_file(self.url, progress=lambda done, total: told.append((done, total)))
        total = sum(array.nbytes for array in self.arrays.values())
        self.assertEqual(told[-1], (total, total))
        self.assertEqual(told, sorted(told))
        code = "import sys, zgate; zgate.load_file(sys.argv[1], progress=True)"
        command = [sys.executable, "-c", code, self.url]
        shown = subprocess.run(command, check=True, capture_output=True, text=True).stderr
        self.assertRegex(shown, r"loading: 100%.*201M/201M \[.*, \d+\.\d\d GB/s\]")


if __name__ == "__main__":
    unittest.main()
