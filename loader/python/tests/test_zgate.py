"""The package against a gateway. MODEL (optional) names a directory with a real
model."""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

import numpy
import safetensors.numpy
import zgate
from gateway import Gateway, arrays


class Loading(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.gateway = Gateway()
        cls.arrays = arrays()
        (cls.gateway.models / "m").mkdir()
        file = cls.gateway.models / "m" / "model.safetensors"
        safetensors.numpy.save_file(cls.arrays, file, metadata={"format": "np"})

    @classmethod
    def tearDownClass(cls):
        cls.gateway.close()

    def same(self, loaded, expected):
        self.assertEqual(sorted(loaded), sorted(expected))
        for name, array in expected.items():
            self.assertEqual(loaded[name].dtype, array.dtype, name)
            self.assertEqual(loaded[name].shape, array.shape, name)
            self.assertEqual(loaded[name].tobytes(), array.tobytes(), name)

    def test_all_tensors_equal_those_of_safetensors(self):
        local = safetensors.numpy.load_file(self.gateway.models / "m" / "model.safetensors")
        self.same(zgate.load_file(self.gateway.url("m")), local)
        self.same(zgate.load_file(self.gateway.url("m/model.safetensors")), local)
        self.same(dict(zgate.stream([self.gateway.url("m")])), local)

    @unittest.skipUnless("MODEL" in os.environ, "MODEL names no real model")
    def test_a_real_model_equals_bit_for_bit(self):
        source = pathlib.Path(os.environ["MODEL"])
        target = self.gateway.models / "real"
        target.mkdir()
        self.addCleanup(shutil.rmtree, target)
        local = {}
        for file in source.glob("*.safetensors"):
            (target / file.name).write_bytes(file.read_bytes())
            local.update(safetensors.numpy.load_file(file))
        self.assertTrue(local)
        self.same(zgate.load_file(self.gateway.url("real")), local)

    def test_an_open_model_looks_like_safetensors(self):
        with zgate.safe_open(self.gateway.url("m")) as model:
            self.assertEqual(model.keys(), sorted(self.arrays))
            self.assertEqual(model.metadata(), {"format": "np"})
            part = model.get_slice("a.weight")
            self.assertEqual((part.get_dtype(), part.get_shape()), ("F32", [256, 384]))
            whole = self.arrays["a.weight"]
            numpy.testing.assert_array_equal(part.part(0, 1, 4), whole[64:128])
            numpy.testing.assert_array_equal(part.part(1, 1, 2), whole[:, 192:])
            numpy.testing.assert_array_equal(part[3:5], whole[3:5])
            with self.assertRaises(ValueError):
                part.part(0, 0, 7)
            with self.assertRaises(KeyError):
                model.get_slice("nothing")
            with self.assertRaises(KeyError):
                model.get_tensor("nothing")
            self.assertEqual(sorted(model.offset_keys()), model.keys())
        with self.assertRaisesRegex(ValueError, "closed"):
            model.keys()

    def test_bounds_may_be_beyond_all_memory(self):
        with zgate.safe_open(self.gateway.url("m")) as model:
            for most in (1 << 44, 1 << 62):
                self.same(dict(model.tensors(inflight_bytes=most, depth=sys.maxsize)), self.arrays)

    def test_ranks_get_their_parts(self):
        halves = [
            dict(zgate.stream(self.gateway.url("m"), ranks=(rank, 2))) for rank in range(2)
        ]
        joined = numpy.concatenate([half["b.weight"] for half in halves])
        numpy.testing.assert_array_equal(joined, self.arrays["b.weight"])

    def test_tensors_own_their_memory(self):
        with zgate.safe_open(self.gateway.url("m")) as model:
            first = model.get_tensor("a.weight")
            second = model.get_tensor("a.weight")
        del model
        first[:] = 0
        numpy.testing.assert_array_equal(second, self.arrays["a.weight"])
        self.assertTrue(first.flags.writeable and not first.any())

    def test_files_come_as_bytes_and_directories_as_lists(self):
        raw = (self.gateway.models / "m" / "model.safetensors").read_bytes()
        pieces = zgate.open_file(self.gateway.url("m/model.safetensors"))
        self.assertEqual(b"".join(pieces), raw)
        listed = zgate.list(self.gateway.url("m"))
        self.assertEqual(listed, [("model.safetensors", "file", len(raw))])

    def test_what_is_wrong_is_said(self):
        with self.assertRaisesRegex(FileNotFoundError, "nothing does not exist"):
            zgate.load_file(self.gateway.url("nothing"))
        with self.assertRaisesRegex(ValueError, "nfs://"):
            zgate.load_file("http://nas/m")
        with self.assertRaisesRegex(ValueError, "framework"):
            zgate.load_file(self.gateway.url("m"), framework="tf")
        with self.assertRaisesRegex(ValueError, "framework='pt'"):
            zgate.load_file(self.gateway.url("m"), "cuda:0", framework="np")
        with self.assertRaisesRegex(ConnectionError, "127.0.0.1:1"):
            zgate.load_file("nfs://127.0.0.1:1/m", patience=0.2)

    def test_damage_is_noticed(self):
        damaged = self.gateway.models / "damaged"
        damaged.mkdir()
        raw = bytearray((self.gateway.models / "m" / "model.safetensors").read_bytes())
        (damaged / "model.safetensors").write_bytes(raw)
        sums = subprocess.run(
            ["sha256sum", "model.safetensors"], cwd=damaged, check=True, capture_output=True
        )
        (damaged / "SHA256SUMS").write_bytes(sums.stdout)
        zgate.load_file(self.gateway.url("damaged"), verify=True)
        raw[-1] ^= 1
        (damaged / "model.safetensors").write_bytes(raw)
        with self.assertRaisesRegex(ValueError, "damaged"):
            zgate.load_file(self.gateway.url("damaged"), verify=True)

    def write_model(self, name, metadata=None):
        """Writes a model to a directory of its own; returns both."""
        folder = self.gateway.models / name
        folder.mkdir()
        self.addCleanup(shutil.rmtree, folder)
        file = folder / "model.safetensors"
        safetensors.numpy.save_file(self.arrays, file, metadata=metadata)
        return folder, file

    def test_without_a_checksum_verification_is_refused(self):
        with self.assertRaisesRegex(ValueError, "nothing to compare with"):
            zgate.load_file(self.gateway.url("m"), verify=True)
        folder, file = self.write_model("other")
        (folder / "SHA256SUMS").write_text("0" * 64 + "  another.safetensors\n")
        with self.assertRaisesRegex(ValueError, "nothing to compare with"):
            zgate.load_file(self.gateway.url("other"), verify=True)

    def test_checksums_are_found_beside_the_files(self):
        # A directory whose name has a dot, and names as `sha256sum ./*` writes them.
        folder, file = self.write_model("llama-3.1")
        sum_of_file = hashlib.sha256(file.read_bytes()).hexdigest()
        for mark in "  ./", " *", "  ":
            (folder / "SHA256SUMS").write_text(f"{sum_of_file}{mark}{file.name}\n")
            for path in "llama-3.1", "llama-3.1/model.safetensors":
                self.same(zgate.load_file(self.gateway.url(path), verify=True), self.arrays)
            (folder / "SHA256SUMS").write_text("0" * 64 + f"{mark}{file.name}\n")
            with self.assertRaisesRegex(ValueError, "damaged"):
                zgate.load_file(self.gateway.url("llama-3.1"), verify=True)

    def test_checksums_that_cannot_be_read_are_no_missing_ones(self):
        folder, _ = self.write_model("unreadable", {"sha256:c.ids": "0" * 64})
        (folder / "SHA256SUMS").mkdir()
        with self.assertRaises(OSError):
            zgate.load_file(self.gateway.url("unreadable"), verify=True)

    def test_of_a_part_only_tensors_can_be_compared(self):
        folder, file = self.write_model("parts")
        sum_of_file = hashlib.sha256(file.read_bytes()).hexdigest()
        (folder / "SHA256SUMS").write_text(f"{sum_of_file}  {file.name}\n")
        url = self.gateway.url("parts")
        with zgate.safe_open(url) as model:
            # All of them by name are the whole file.
            self.same(dict(model.tensors(model.keys(), verify=True)), self.arrays)
            with self.assertRaisesRegex(ValueError, "nothing to compare with"):
                model.tensors(["a.weight"], verify=True)
            with self.assertRaisesRegex(ValueError, "nothing to compare with"):
                model.tensors(part=(0, 0, 2), verify=True)
        with self.assertRaisesRegex(ValueError, "nothing to compare with"):
            dict(zgate.stream(url, ranks=(1, 2), verify=True))

    def test_tensors_are_compared_with_their_own_checksums(self):
        good = {
            f"sha256:{name}": hashlib.sha256(array.tobytes()).hexdigest()
            for name, array in self.arrays.items()
        }
        self.write_model("good", good)
        with zgate.safe_open(self.gateway.url("good")) as model:
            names = ["a.weight", "e.scalar"]
            expected = {name: self.arrays[name] for name in names}
            self.same(dict(model.tensors(names, verify=True)), expected)
            # Of what can be cut a part comes, which has no checksum.
            halves = dict(model.tensors(names, part=(0, 1, 2), verify=True))
            numpy.testing.assert_array_equal(halves["a.weight"], expected["a.weight"][128:])
            with self.assertRaisesRegex(ValueError, "nothing to compare with"):
                model.tensors(["a.weight"], part=(0, 1, 2), verify=True)
        self.write_model("bad", {**good, "sha256:c.ids": "0" * 64})
        with zgate.safe_open(self.gateway.url("bad")) as model:
            dict(model.tensors(["a.weight"], verify=True))
            with self.assertRaisesRegex(ValueError, "c.ids.*damaged"):
                dict(model.tensors(["c.ids"], verify=True))

    def test_a_process_that_ends_leaves_the_server(self):
        before = self.gateway.clients()
        program = "import sys, zgate; print(len(zgate.load_file(sys.argv[1])), flush=True); input()"
        command = [sys.executable, "-c", program, self.gateway.url("m")]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, **pipes) as child:
            self.assertEqual(int(child.stdout.readline()), len(self.arrays))
            self.assertEqual(len(self.gateway.clients()), len(before) + 1)
            child.communicate("\n", timeout=20)
        self.assertEqual(child.returncode, 0)
        self.assertEqual(self.gateway.clients(), before)

    def test_a_process_that_fails_leaves_the_server(self):
        before = self.gateway.clients()
        failing = [
            "zgate.load_file(sys.argv[1] + '/absent')",
            "zgate.safe_open(sys.argv[1]); raise SystemExit(1)",
            "[zgate.list(sys.argv[1] + f'?connections={n}') for n in range(1, 21)]; 1 / 0",
        ]
        for line in failing:
            command = [sys.executable, "-c", f"import sys, zgate; {line}", self.gateway.url("m")]
            child = subprocess.run(command, capture_output=True, timeout=60)
            self.assertEqual(child.returncode, 1, child.stderr)
            self.assertEqual(self.gateway.clients(), before, line)

    def test_a_server_that_restarts_is_waited_for(self):
        with zgate.safe_open(self.gateway.url("m")) as model:
            self.gateway.kill()
            self.gateway.start()
            loaded = dict(model.tensors())
        self.same(loaded, self.arrays)


if __name__ == "__main__":
    unittest.main()
