"""The copier, in the real fastsafetensors: no CUDA is needed for it."""

import importlib.util
import unittest

import numpy
import safetensors.numpy
from gateway import Gateway, Proxy

MISSING = [
    name for name in ("torch", "fastsafetensors") if importlib.util.find_spec(name) is None
]


@unittest.skipIf(MISSING, f"not installed: {', '.join(MISSING)}")
class Copier(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.gateway = Gateway()
        folder = cls.gateway.models / "m"
        folder.mkdir()
        random = numpy.random.default_rng(13)
        cls.files, cls.arrays = [], {}
        for shard in range(3):
            arrays = {
                f"{shard}.weight": random.standard_normal((512, 768)).astype("f4"),
                f"{shard}.bias": random.standard_normal(77).astype("f2"),
                f"{shard}.ids": random.integers(0, 1 << 40, (3, 5, 7)),
                f"{shard}.empty": numpy.empty((0, 4), "f4"),
            }
            safetensors.numpy.save_file(arrays, folder / f"{shard}.safetensors")
            cls.files.append(cls.gateway.url(f"m/{shard}.safetensors"))
            cls.arrays.update(arrays)

    @classmethod
    def tearDownClass(cls):
        cls.gateway.close()

    def same(self, tensor, name):
        array = self.arrays[name]
        self.assertEqual(tuple(tensor.shape), array.shape, name)
        self.assertEqual(tensor.numpy().dtype, array.dtype, name)
        self.assertEqual(tensor.numpy().tobytes(), array.tobytes(), name)

    def test_it_is_a_copier_as_published(self):
        from fastsafetensors.copier import CopierInterface, get_copier_class
        from zgate.adapters.fastsafetensors import ZgateCopier

        self.assertTrue(issubclass(ZgateCopier, CopierInterface))
        self.assertEqual(ZgateCopier.__abstractmethods__, frozenset())
        self.assertIs(get_copier_class("zgate"), ZgateCopier)

    def test_a_load_through_it(self):
        from fastsafetensors import live_allocation_count
        from zgate.adapters.fastsafetensors import ZgateLoader

        before = live_allocation_count()
        loader = ZgateLoader(None, device="cpu")
        loader.add_filenames({0: self.files})
        self.assertEqual(sorted(loader.get_keys()), sorted(self.arrays))
        buffers = loader.copy_files_to_device()
        tensors = {name: buffers.get_tensor(name) for name in loader.get_keys()}
        buffers.close()
        loader.close()
        # They outlive the buffers they are parts of.
        for name, tensor in tensors.items():
            self.same(tensor, name)
        tensors.clear()
        del tensor, buffers, loader
        self.assertEqual(live_allocation_count(), before)

    def test_only_what_is_wanted(self):
        from zgate.adapters.fastsafetensors import ZgateLoader

        loader = ZgateLoader(None)
        loader.set_tensor_filter(lambda name: name.endswith(".bias"))
        loader.add_filenames({0: self.files})
        buffers = loader.copy_files_to_device()
        self.assertEqual(len(loader.get_keys()), 3)
        for name in loader.get_keys():
            self.same(buffers.get_tensor(name), name)
        buffers.close()
        loader.close()

    def test_in_a_pipeline(self):
        from fastsafetensors.parallel_loader import PipelineParallel
        from zgate.adapters.fastsafetensors import ZgateLoader

        pipeline = PipelineParallel(None, ZgateLoader(None), self.files, use_tqdm_on_load=False)
        loaded = dict(pipeline.iterate_weights())
        pipeline.close()
        self.assertEqual(sorted(loaded), sorted(self.arrays))
        for name, tensor in loaded.items():
            self.same(tensor, name)

    def test_chunks(self):
        from zgate.adapters.fastsafetensors import ZgateLoader

        loader = ZgateLoader(None)
        loader.add_filenames({0: self.files[:1]})
        (metadata, _), = loader.meta.values()
        names = {"0.ids"}
        ranges = metadata.select_byte_ranges(lambda name: name in names)
        copier = loader.copier_constructor(metadata, loader.device, loader.framework)
        copier.set_chunk(ranges, names)
        memory = copier.submit_io(False, 1 << 30)
        self.assertLess(memory.get_length(), 4096)
        tensors = copier.wait_io(memory)
        self.assertEqual(set(tensors), names)
        for name, tensor in tensors.items():
            self.same(tensor.get_raw(), name)
        del tensors, tensor
        loader.framework.free_tensor_memory(memory, loader.device)
        self.assertEqual(type(copier).chunk_transient_multiplier([]), 1)

    def test_what_is_wrong_is_said(self):
        from fastsafetensors import live_allocation_count
        from zgate.adapters.fastsafetensors import ZgateLoader

        before = live_allocation_count()
        with self.assertRaisesRegex(ValueError, "nfs://"):
            ZgateLoader(None).add_filenames({0: ["/local/file.safetensors"]})
        with self.assertRaises(FileNotFoundError):
            ZgateLoader(None).add_filenames({0: [self.gateway.url("m/none.safetensors")]})
        (self.gateway.models / "m" / "bad.safetensors").write_bytes(b"\xff" * 100)
        with self.assertRaisesRegex(ValueError, "header"):
            ZgateLoader(None).add_filenames({0: [self.gateway.url("m/bad.safetensors")]})
        with self.assertRaisesRegex(ValueError, "pytorch"):
            ZgateLoader(None, framework="paddle")
        proxy = Proxy(self.gateway.port)
        loader = ZgateLoader(None, patience=0.5)
        loader.add_filenames({0: [proxy.url("m/0.safetensors")]})
        proxy.close()
        with self.assertRaises(ConnectionError):
            loader.copy_files_to_device()
        loader.close()
        self.assertEqual(live_allocation_count(), before)


if __name__ == "__main__":
    unittest.main()
