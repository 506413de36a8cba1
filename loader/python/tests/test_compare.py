"""The comparison of loaders, with a small model."""

import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).parents[1] / "bench" / "compare.py"
MISSING = [name for name in ("torch", "safetensors") if importlib.util.find_spec(name) is None]


@unittest.skipIf(MISSING, f"not installed: {', '.join(MISSING)}")
class Compare(unittest.TestCase):
    def test_loaders_are_compared_by_turns(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder, "report.json")
            command = [sys.executable, SCRIPT, "--size-gib", "0.1", "--files", "1", "--rounds", "1"]
            command += ["--ranks", "2", "--dir", folder, "--out", out]
            ended = subprocess.run(command, capture_output=True, text=True, check=False)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            report = json.loads(out.read_text())
        loads = report["loads"]["cpu"]
        self.assertLessEqual({"zgate", "safetensors"}, loads.keys())
        for name, row in loads.items():
            self.assertEqual(row["bytes"], report["model_bytes"], name)
            self.assertGreater(row["seconds"], 0, name)
        # The model arrives once for both ranks, with headers and listings.
        self.assertLess(1, report["ranks"][0]["sent_bytes_per_model_byte"])
        self.assertGreater(1.2, report["ranks"][0]["sent_bytes_per_model_byte"])
