"""The bar of those who have no tqdm. With tqdm it is tested where models are
loaded."""

import io
import subprocess
import sys
import unittest

from zgate._progress import Line, Meter


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Load:
    total_bytes = 4_000_000_000
    done_bytes = 0


class WithoutTqdm(unittest.TestCase):
    def test_a_file_gets_one_line_at_the_end(self):
        shown = io.StringIO()
        line = Line("loading", shown)
        line.total = 200_000_000
        for _ in range(10):
            line.update(20_000_000)
            line.refresh()
        self.assertEqual(shown.getvalue(), "")
        line.close()
        line.close()
        self.assertRegex(
            shown.getvalue(), r"\Aloading: 100% 200/200 MB \[\d+\.\d s, \d+\.\d\d GB/s\]\n\Z"
        )

    def test_a_terminal_sees_it_grow(self):
        shown = Terminal()
        line = Line("loading", shown)
        line.total = 200_000_000
        line.update(50_000_000)
        line.refresh()
        line.update(150_000_000)
        line.close()
        first, *rest, last = shown.getvalue().split("\r")[1:]
        self.assertRegex(first, r"\Aloading:  25% 50/200 MB")
        self.assertTrue(last.startswith("loading: 100% 200/200 MB"), last)
        self.assertTrue(last.endswith("\n"), last)
        self.assertNotIn("\n", first + "".join(rest))

    def test_nothing_to_load_and_nowhere_to_say_it(self):
        shown = io.StringIO()
        Line("loading", shown).close()
        self.assertRegex(shown.getvalue(), r"\Aloading: 100% 0/0 MB")
        nowhere = Line("loading", None)
        nowhere.update(1)
        nowhere.refresh()
        nowhere.close()

    def test_it_is_taken_when_tqdm_is_missing(self):
        code = (
            "import sys\n"
            "sys.modules['tqdm'] = None\n"
            "from zgate._progress import Line, Meter\n"
            "assert isinstance(Meter(True, 'loading')._bar, Line)\n"
        )
        subprocess.run([sys.executable, "-c", code], check=True)

    def test_a_function_is_told_and_silence_stays(self):
        told = []
        load = Load()
        meter = Meter(lambda done, total: told.append((done, total)), "loading")
        meter.begin(load)
        load.done_bytes = 3
        meter.moved(load)
        meter.close()
        self.assertEqual(told, [(3, load.total_bytes)])
        self.assertIsNone(Meter(False, "loading")._bar)


if __name__ == "__main__":
    unittest.main()
