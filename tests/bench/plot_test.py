"""plot.py by hand, on tables that are not bench's and on some that are like them."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

PLOT = os.path.realpath(f"{os.path.dirname(os.path.realpath(__file__))}/../../trainers/bench/plot.py")


class Plot(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.table, self.picture = f"{self.folder}/table.json", f"{self.folder}/a.svg"

    def plot(self, *words):
        return subprocess.run([sys.executable, PLOT, *words], capture_output=True, text=True, check=False)

    def write(self, text):
        with open(self.table, "w") as file:
            file.write(text if isinstance(text, str) else json.dumps(text))

    def plotted(self, table, *flags):
        self.write(table)
        ended = self.plot(*flags, self.table)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        return ended.stdout

    def check(self, svg, counts):
        for text, count in counts.items():
            self.assertEqual(svg.count(f">{text}<"), count, text)

    def test_a_plain_table_has_a_chart_a_number_over_its_largest_key_and_a_line_for_each_other_key(self):
        plan = [{"hosts": hosts, "stage": stage, "step_seconds": 1 / hosts, "efficiency": 0.5, "breaks": None}
                for hosts in (1, 2, 4, 8, 64) for stage in (0, 3)]
        self.check(self.plotted(plan), {"step time": 1, "efficiency": 1, "stage 0": 1, "stage 3": 1, "hosts": 2, "1": 2, "8": 2,
                                        "64": 2, "breaks": 0})
        self.check(self.plotted(plan, "--columns", "efficiency"), {"step time": 0})

    def test_a_table_whose_keys_are_words_has_bars(self):
        self.check(self.plotted({"model": "cnn", "classes": [{"class": "boot", "recall": 0.75, "peak_bytes": 3000000},
                                                             {"class": "shirt", "recall": 0.5, "peak_bytes": 2000000}]}),
                   {"recall": 1, "peak bytes": 1, "0.75": 1, "2 MB": 2, "boot": 2, "shirt": 2, "classes": 2})

    def test_quartiles_references_and_parts_are_drawn_as_bench_writes_them(self):
        def measured(system, median, **more):
            return {"system": system, "own": True, "seconds": {"median": median, "lower_quartile": median,
                                                               "upper_quartile": median},
                    "exposed_parts": {"forward": 0.003, "communication": median - 0.003}, **more}

        table = {"results": [{"model": "mlp", "replicas": replicas, "measurements": [
            measured("alone", 0.009, reference=True), measured("stage 0", 0.0125), measured("ddp 2.9", 0.025)]}
            for replicas in (2, 4)]}
        self.check(self.plotted(table), {"mlp, 2 replicas": 1, "mlp, 4 replicas": 1, "stage 0": 2, "12.5 ms": 2, "alone": 0})
        self.check(self.plotted(table, "--columns", "exposed_parts"), {"forward": 1, "communication": 1, "25 ms": 4})

    def test_what_is_no_finite_number_is_left_out_and_a_key_may_have_numbers_and_words(self):
        svg = self.plotted("""[
            {"case": 1, "step_seconds": {"median": 1, "lower_quartile": null, "upper_quartile": 2}},
            {"case": 2, "step_seconds": {"median": null, "lower_quartile": 1, "upper_quartile": 2}},
            {"case": 3, "step_seconds": {"median": Infinity}}, {"case": "last", "step_seconds": {"median": 4}}]""")
        self.check(svg, {"case 1": 1, "last": 1, "step time": 1, "case 2": 0, "case 3": 0})
        self.check(self.plotted('[{"case": "a", "loss": NaN}, {"case": "b", "loss": 1e999}, {"case": "c", "loss": 7.25}]'),
                   {"7.25": 1})

    def test_lists_in_rows_that_have_not_the_same_columns_are_drawn(self):
        self.check(self.plotted({"runs": [{"a": 1, "steps": [{"step": 1, "loss": 2}]},
                                          {"b": 2, "steps": [{"step": 2, "loss": 3}]}]}), {"loss": 1})

    def test_a_picture_is_an_svg_png_or_pdf_as_its_name_ends_and_takes_the_place_of_an_old_one(self):
        self.write([{"class": "boot", "recall": 0.75}])
        for name, begin in {"a.svg": b"<?xml", "a.png": b"\x89PNG", "a.pdf": b"%PDF"}.items():
            with open(f"{self.folder}/{name}", "w") as file:
                file.write("old")
            self.assertEqual(self.plot(self.table, f"{self.folder}/{name}").returncode, 0)
            with open(f"{self.folder}/{name}", "rb") as file:
                self.assertTrue(file.read().startswith(begin))
        self.assertEqual(len(os.listdir(self.folder)), 4)

    def test_what_cannot_be_drawn_is_said_in_a_line_and_leaves_the_old_picture(self):
        with open(self.picture, "w") as file:
            file.write("old")
        for table, reason in {"{": "Expecting property name", "{}": "there is no table with numbers",
                              '[{"loss": Infinity}, {"loss": null}]': "there is no table with numbers",
                              f'[{{"bytes": 1{"0" * 400}, "loss": 1}}, {{"bytes": 2, "loss": 1}}]': "int too large"}.items():
            self.write(table)
            ended = self.plot(self.table, self.picture)
            self.assertEqual((ended.returncode, ended.stderr.count("\n")), (1, 1))
            self.assertTrue(ended.stderr.startswith(f"plot.py: {self.table}: {reason}"), ended.stderr)
        self.write([{"recall": 1}])
        self.assertEqual(self.plot("--columns", "loss", self.table, self.picture).stderr,
                         f"plot.py: {self.table}: no table has the column loss\n")
        self.assertEqual(self.plot(self.table, "a.gif").returncode, 2)
        with open(self.picture) as file:
            self.assertEqual(file.read(), "old")
        os.mkdir(f"{self.folder}/folder.svg")
        self.assertRegex(self.plot(self.table, f"{self.folder}/folder.svg").stderr, "^.*Is a directory.*\n$")
        self.assertEqual(len(os.listdir(self.folder)), 3)


if __name__ == "__main__":
    unittest.main()
