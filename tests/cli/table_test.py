#!/usr/bin/env python3
"""heddle run on tables: a model of trees or a pipeline in, labels and named probabilities out.

Usage: table_test.py BIN_DIR [unittest arguments]
"""
import csv
import io
import json
import math
import pathlib
import struct
import tempfile
import unittest

from programs import heddle, write_npy

NAMES = ["age", "income", "height"]
ROWS = 4  # of the module

# One tree for each of three classes: (feature, threshold, score below, score from there on).
STUMPS = [(0, 30.0, 1.5, -0.5), (1, 2.5, -1.0, 0.75), (2, 1.5, 0.25, 0.5)]


def stump(feature, threshold, below, above):
    return {
        "tree_param": {"num_deleted": "0", "num_feature": str(len(NAMES)), "num_nodes": "3", "size_leaf_vector": "1"},
        "left_children": [1, -1, -1], "right_children": [2, -1, -1], "parents": [2147483647, 0, 0],
        "split_indices": [feature, 0, 0], "split_conditions": [threshold, below, above],
        "split_type": [0, 0, 0], "default_left": [1, 0, 0], "base_weights": [0.0, below, above],
        "categories": [], "categories_nodes": [], "categories_segments": [], "categories_sizes": [],
        "id": 0, "loss_changes": [1.0, 0.0, 0.0], "sum_hessian": [2.0, 1.0, 1.0]}


def xgboost_model(objective, stumps, names):
    classes = len(stumps) if objective.startswith("multi") else 0
    return {
        "version": [2, 0, 3],
        "learner": {
            "attributes": {}, "feature_names": names, "feature_types": [],
            "gradient_booster": {
                "name": "gbtree",
                "model": {
                    "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": str(len(stumps))},
                    "iteration_indptr": [0, len(stumps)],
                    "tree_info": list(range(classes)) if classes else [0] * len(stumps),
                    "trees": [dict(stump(*s), id=i) for i, s in enumerate(stumps)]}},
            "learner_model_param": {"base_score": "5E-1", "boost_from_average": "1", "num_class": str(classes),
                                    "num_feature": str(len(NAMES)), "num_target": "1"},
            "objective": {"name": objective}}}


def margins(row):
    """What the trees say. A missing value goes to the left."""
    return [above if row[feature] is not None and row[feature] >= threshold else below
            for feature, threshold, below, above in STUMPS]


def softmax(values):
    sums = sum(map(math.exp, values))
    return [math.exp(v) / sums for v in values]


def random_rows(count):
    return [[(7 * i) % 61, None if i % 5 == 3 else (i % 9) / 2, 1 + (i % 11) / 10] for i in range(count)]


# ---- A pipeline as an ONNX file, written field by field ----


def varint(value):
    out, value = b"", value & (1 << 64) - 1
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def attribute(name, value):
    """A text, or a list of floats, integers or texts."""
    if isinstance(value, str):
        return field(1, name) + field(4, value) + field(20, 3)
    if isinstance(value, int):
        return field(1, name) + field(3, value) + field(20, 2)
    number, kind = {float: (7, 6), int: (8, 7), str: (9, 8)}[type(value[0])]
    return field(1, name) + b"".join(field(number, v) for v in value) + field(20, kind)


def node(op, inputs, outputs, domain="ai.onnx.ml", **attributes):
    return field(1, b"".join(field(1, name) for name in inputs) + b"".join(field(2, name) for name in outputs) + field(4, op) +
                 b"".join(field(5, attribute(*a)) for a in attributes.items()) + field(7, domain))


def value(name, kind, *dims):
    """A dimension that is None is left open, without a name."""
    shape = b"".join(field(1, b"" if d is None else field(1, d)) for d in dims)
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, shape)))


COLORS = ["red", "dark green", "blue"]
CLASSES = ["no", "yes", "maybe, later"]
WEIGHTS = [[1.0, -1.0, 0.5, 0.25], [0.0, 2.0, -0.5, -0.25], [0.5, 0.5, 1.0, 0.125]]  # by class: of each colour, and of the size
FLOAT, INT64, STRING = 1, 7, 8


def pipeline(rows=ROWS):
    """A colour and a size become one of three classes."""
    graph = (node("OneHotEncoder", ["color"], ["hot"], cats_strings=COLORS) +
             node("Flatten", ["hot"], ["flat"], domain="", axis=1) +
             node("Concat", ["flat", "size"], ["x"], domain="", axis=1) +
             node("LinearClassifier", ["x"], ["label", "scores"], classlabels_strings=CLASSES, coefficients=sum(WEIGHTS, []),
                  post_transform="SOFTMAX") +
             field(2, "pipeline") + field(11, value("color", STRING, rows, 1)) + field(11, value("size", FLOAT, rows, 1)) +
             field(12, value("label", STRING, rows)) + field(12, value("scores", FLOAT, rows, len(CLASSES))))
    opsets = field(8, field(1, "") + field(2, 13)) + field(8, field(1, "ai.onnx.ml") + field(2, 1))
    return field(1, 7) + field(7, graph) + opsets


def encoder():
    """A colour becomes its number, and any other text becomes -1."""
    graph = (node("LabelEncoder", ["color"], ["code"], keys_strings=COLORS, values_int64s=list(range(len(COLORS))), default_int64=-1) +
             field(2, "encoder") + field(11, value("color", STRING, ROWS, 1)) + field(12, value("code", INT64, ROWS, 1)))
    opsets = field(8, field(1, "") + field(2, 13)) + field(8, field(1, "ai.onnx.ml") + field(2, 2))
    return field(1, 7) + field(7, graph) + opsets


WIDTH = 300  # so that fewer rows than --rows may say are too many bytes


def scaler():
    """Each of many numbers is doubled."""
    graph = (node("Scaler", ["x"], ["y"], offset=[0.0], scale=[2.0]) + field(2, "scaler") +
             field(11, value("x", FLOAT, ROWS, WIDTH)) + field(12, value("y", FLOAT, ROWS, WIDTH)))
    opsets = field(8, field(1, "") + field(2, 13)) + field(8, field(1, "ai.onnx.ml") + field(2, 1))
    return field(1, 7) + field(7, graph) + opsets


def pipeline_scores(color, size):
    features = [float(color == known) for known in COLORS] + [size]
    return softmax([sum(w * f for w, f in zip(row, features)) for row in WEIGHTS])


class Tables(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.directory.name)
        cls.three = cls.make("three", xgboost_model("multi:softprob", STUMPS, NAMES))
        cls.any = cls.make("any", xgboost_model("multi:softprob", STUMPS, NAMES), rows=None)
        cls.two = cls.make("two", xgboost_model("binary:logistic", STUMPS[:1], []))
        cls.pipeline = cls.make("pipeline", pipeline())
        cls.wide = cls.make("wide", scaler())
        cls.encoder = cls.make("encoder", encoder())
        cls.open = cls.make("open", pipeline(rows=None))
        cls.one_row = cls.make("one_row", pipeline(rows=1))

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    @classmethod
    def make(cls, name, model, rows=ROWS):
        """A file of XGBoost without `rows`: the module has the blocks of rows that the command chooses."""
        is_onnx = isinstance(model, bytes)
        file = cls.path / (f"{name}.onnx" if is_onnx else f"{name}.json")
        file.write_bytes(model if is_onnx else json.dumps(model).encode())
        module = cls.path / f"{name}.heddle"
        shape = ["--shape", f"rows={rows}"] if rows and not is_onnx else []
        heddle("tune", file, *shape, "-o", module, "--trials", 1, "--batch", 1, "--no-compare", "--plan", "off",
               "--data", cls.path / "data", "--server", "127.0.0.1:9", check=0)
        return module

    def write(self, rows, header=NAMES, order=None, name="data.csv", extra=()):
        """A CSV file with its columns in that order. `extra`: columns of text at the end."""
        order = order or range(len(NAMES))
        file = self.path / name
        with open(file, "w", newline="") as out:
            writer = csv.writer(out)
            if header:
                writer.writerow([header[c] for c in order] + list(extra))
            for row in rows:
                writer.writerow(["" if row[c] is None else row[c] for c in order] + ["text, and more"] * len(extra))
        return file

    def told(self, *args):
        """The rows that --json prints."""
        lines = heddle("run", *args, "--json", check=0).stdout.splitlines()
        found = [json.loads(line) for line in lines]
        self.assertEqual([row["row"] for row in found], list(range(1, len(found) + 1)))
        return [row["outputs"] for row in found]

    def expect(self, found, rows):
        self.assertEqual(len(found), len(rows))
        for outputs, row in zip(found, rows):
            probabilities = softmax(margins(row))
            self.assertEqual(list(outputs["scores"]), ["0", "1", "2"])
            for name, value in enumerate(probabilities):
                self.assertAlmostEqual(outputs["scores"][str(name)], value, places=5)
            self.assertEqual(outputs["label"], probabilities.index(max(probabilities)))

    def refused(self, module, *args, says):
        done = heddle("run", module, *args, check=2)
        told = [line for line in done.stderr.strip().splitlines() if not line.startswith("random data for")]
        self.assertEqual(len(told), 1, done.stderr)
        for word in says:
            self.assertIn(word, done.stderr)
        self.assertEqual(done.stdout, "")

    def test_any_number_of_rows_in_any_order_of_columns(self):
        for count in (1, ROWS - 1, ROWS, ROWS + 1, 5 * ROWS + 3):
            rows = random_rows(count)
            self.expect(self.told(self.three, "--input", self.write(rows)), rows)
            self.expect(self.told(self.three, "--input", self.write(rows, order=[2, 0, 1])), rows)
            self.expect(self.told(self.three, "--input", self.write(rows, header=None)), rows)

    def test_one_module_for_any_number_of_rows(self):
        for count in (1, 2, 15, 17, 300):
            rows = random_rows(count)
            self.expect(self.told(self.any, "--input", self.write(rows)), rows)
        shown = heddle("inspect", self.any, check=0).stdout
        self.assertIn("any number, in blocks of 2048, 128, 16, 1", shown)
        inspected = json.loads(heddle("inspect", self.any, "--json", check=0).stdout)
        self.assertEqual([block["rows"] for block in inspected["blocks"]], [2048, 128, 16, 1])
        timed = heddle("run", self.any, "--rows", 16, "--evaluate", "--rounds", 1, check=0).stdout
        self.assertIn("16 rows a run", timed)
        evaluated = json.loads(heddle("run", self.any, "--rows", 1, "--evaluate", "--rounds", 1, "--json", check=0).stdout.splitlines()[-1])
        self.assertEqual(evaluated["rows"], 1)
        heddle("run", self.any, "--rows", 5, "--check", self.path / "any.json", check=0)
        self.refused(self.any, "--rows", 5, "--evaluate", says=("no block of 5 rows", "2048 or 128 or 16 or 1"))
        self.refused(self.any, "--rows", 5, "--input", self.write(random_rows(3)), says=("--rows 5", "data.csv"))
        self.refused(self.any, "--header", "yes", says=("--header", "no --input is one"))

    def test_inputs_are_limited(self):
        most = 2**31 // (4 * WIDTH)
        for rows in (most + 1, 10**7):
            self.refused(self.wide, "--rows", rows, says=(f"--rows {rows}", f"{2**31} bytes", f"give at most {most} rows"))
        heddle("run", self.wide, "--rows", 10**7 + 1, check=2)
        self.refused(self.one_row, "--rows", 2, says=("--rows 2", "fixed", "leave it out"))

    def test_modules_are_compared_with_equal_rows(self):
        compare = ("--evaluate", "--rounds", 1)
        # Rows of a module of one row cannot be told from other dimensions, so their number is fixed.
        evaluated = json.loads(heddle("run", self.one_row, "--against", self.any, *compare, "--json", check=0).stdout)
        self.assertEqual(evaluated["rows"], 1)
        blocks = {block["rows"]: block["calls"] for block in json.loads(heddle("inspect", self.any, "--json", check=0).stdout)["blocks"]}
        timed_kernels = [task for task in evaluated["tasks"] if task["ns"][1] > 0]
        self.assertTrue(timed_kernels)
        self.assertLessEqual(len(timed_kernels), blocks[1], "kernels of one block only")
        timed = heddle("run", self.any, "--against", self.one_row, "--rows", 1, *compare, check=0)
        self.assertIn("1 row a run", timed.stdout)
        self.assertIn("holds another model", timed.stderr)
        self.refused(self.any, "--against", self.one_row, *compare, says=("2048 rows", "fixed at 1", "give as many"))
        self.refused(self.one_row, "--against", self.three, *compare,
                     says=("one_row.heddle computes 1 row at once", "three.heddle has no block of as many", "--shape"))
        self.refused(self.three, "--against", self.any, *compare, says=("no block of 4 rows", "give 2048 or 128 or 16 or 1 rows"))

    def test_columns_that_the_model_lacks_are_ignored_with_a_warning(self):
        rows = random_rows(6)
        file = self.write(rows, order=[1, 2, 0], extra=["id", "note"])
        self.expect(self.told(self.three, "--input", file), rows)
        warned = heddle("run", self.three, "--input", file, check=0).stderr
        self.assertIn("6 rows, columns by name", warned)
        self.assertIn("ignored: 'id' and 'note'", warned)

    def test_an_npy_file_may_have_any_number_of_rows(self):
        for count in (1, ROWS, 2 * ROWS + 1):
            write_npy(self.path / "x.npy", [count, len(NAMES)], 2.0)
            self.expect(self.told(self.three, "--input", self.path / "x.npy"), [[2.0] * len(NAMES)] * count)
            heddle("run", self.three, "--input", self.path / "x.npy", "-o", self.path / "out", check=0)
            header = (self.path / "out" / "scores.npy").read_bytes()[:128]
            self.assertIn(f"({count},3)".encode(), header)

    def test_the_table_names_labels_and_probabilities(self):
        shown = heddle("run", self.three, "--input", self.write(random_rows(27)), check=0).stdout.splitlines()
        self.assertEqual(shown[0].split(), ["row", "label", "scores.0", "scores.1", "scores.2"])
        self.assertEqual(len(shown), 1 + 20 + 1)
        self.assertIn("7 more rows", shown[-1])
        plain = heddle("run", self.three, "--input", self.path / "data.csv", "--plain", check=0).stdout.splitlines()
        self.assertEqual(len(plain), 1 + 27)

    def test_csv_on_stdout_and_in_a_file(self):
        rows = random_rows(27)
        file = self.write(rows)
        printed = heddle("run", self.three, "--input", file, "--csv", check=0).stdout
        found = list(csv.DictReader(io.StringIO(printed)))
        self.assertEqual(len(found), len(rows))
        for line, row in zip(found, rows):
            for name, value in enumerate(softmax(margins(row))):
                self.assertAlmostEqual(float(line[f"scores.{name}"]), value, places=5)
        silent = heddle("run", self.three, "--input", file, "-o", self.path / "out.csv", check=0)
        self.assertEqual(silent.stdout, "")
        self.assertEqual((self.path / "out.csv").read_text(), printed)
        self.refused(self.three, "--csv", "--json", says=("--csv", "--json"))

    def test_two_classes_have_one_named_score(self):
        rows = random_rows(9)
        for outputs, row in zip(self.told(self.two, "--input", self.write(rows)), rows):
            probability = 1 / (1 + math.exp(-margins(row)[0]))
            self.assertAlmostEqual(outputs["scores"]["1"], probability, places=5)
            self.assertEqual(outputs["label"], int(probability >= 0.5))
        # The model has no names, so other ones in the file are a header and nothing more.
        by_position = heddle("run", self.two, "--input", self.write(rows, header=["a", "b", "c"]), check=0)
        self.assertIn("columns by position; the first line is a header", by_position.stderr)

    def test_a_header_that_only_numbers_the_columns(self):
        rows = random_rows(6)
        numbered = self.write(rows, header=["0", "1", "2"])
        for rule in ([], ["--header", "yes"]):
            self.expect(self.told(self.three, "--input", numbered, *rule), rows)
        self.expect(self.told(self.three, "--input", numbered, "--header", "no"), [[0.0, 1.0, 2.0], *rows])
        told = heddle("run", self.three, "--input", numbered, check=0).stderr
        self.assertIn("6 rows, columns by position; the first line is a header (--header no: it is a row)", told)
        told = heddle("run", self.three, "--input", self.write([[0, 1, 2], [3, 4, 5]], header=None), check=0).stderr
        self.assertIn("2 rows, columns by position; there is no header (--header yes: the first line, 0,1,.., is one)", told)

    def test_a_header_above_texts_has_to_be_told(self):
        file = self.path / "colors.csv"
        file.write_text("colour\n" + "".join(f"{color}\n" for color in [*COLORS, "pink"]))

        def codes(*rule):
            done = heddle("run", self.encoder, "--input", file, "--csv", *rule, check=0)
            return [int(line[-1]) for line in list(csv.reader(io.StringIO(done.stdout)))[1:]], done.stderr
        found, told = codes()
        self.assertEqual(found, [-1, 0, 1, 2, -1])
        self.assertIn("5 rows, columns by position; there is no header (--header yes: the first line is one)", told)
        found, told = codes("--header", "yes")
        self.assertEqual(found, [0, 1, 2, -1])
        self.assertIn("4 rows, columns by position; the first line is a header\n", told)
        self.assertEqual(codes("--header", "no")[0], [-1, 0, 1, 2, -1])
        self.assertNotIn("(--header", codes("--header", "no")[1])

    def test_what_does_not_match_is_said_at_once(self):
        rows = random_rows(3)
        self.refused(self.three, "--input", self.write(rows, header=["age", "salary", "height"]),
                     says=("data.csv", "lacks 1 of the 3 columns", "'income'", "'salary'", "rename"))
        self.refused(self.three, "--input", self.write([[*row[:2], "tall"] for row in rows]),
                     says=("line 2, column 3 'height'", "'tall' is no number"))
        self.refused(self.two, "--input", self.write(rows, extra=["id"]), says=("4 columns", "takes 3"))
        self.refused(self.three, "--input", self.write([]), says=("no rows",))
        (self.path / "broken.csv").write_text('age,income,height\n1,"2,3\n')
        self.refused(self.three, "--input", self.path / "broken.csv", says=("broken.csv", "line 2", "quotes"))
        heddle("run", self.three, "--input", self.path / "nowhere.csv", check=4)
        write_npy(self.path / "wide.npy", [3, 4])
        self.refused(self.three, "--input", self.path / "wide.npy", says=("[3,4]", "[4,3]", "as many rows as you like", "give an array of that shape"))
        write_npy(self.path / "double.npy", [5, 3], descr="<f8")
        self.refused(self.three, "--input", self.path / "double.npy", says=("f64[5,3]", "save it with x.astype('float32')"))
        write_npy(self.path / "five.npy", [5, 3])
        heddle("run", self.three, "--input", self.path / "five.npy", "--check", self.path / "three.json", check=0)
        self.refused(self.three, "--input", self.path / "five.npy", "--evaluate", says=("no block of 5 rows", "give 4 rows"))

    def test_a_pipeline_takes_words_and_gives_words(self):
        rows = [(color, i / 2) for i, color in enumerate([*COLORS, "pink", "", "dark green or so", "red"])]
        file = self.path / "words.csv"
        with open(file, "w", newline="") as out:
            csv.writer(out).writerows([("size", "color"), *((size, color) for color, size in rows)])
        found = self.told(self.pipeline, "--input", file)
        self.assertEqual(len(found), len(rows))
        for outputs, (color, size) in zip(found, rows):
            expected = pipeline_scores(color, size)
            self.assertEqual(list(outputs["scores"]), CLASSES)
            for name, probability in zip(CLASSES, expected):
                self.assertAlmostEqual(outputs["scores"][name], probability, places=5)
            self.assertEqual(outputs["label"], CLASSES[expected.index(max(expected))])
        shown = heddle("run", self.pipeline, "--input", file, "--csv", check=0)
        self.assertIn("7 rows, columns by name", shown.stderr)
        self.assertEqual(next(csv.reader(io.StringIO(shown.stdout))), ["row", "label", *(f"scores.{name}" for name in CLASSES)])
        self.assertIn("input    color: u8[4,1,11] texts columns 'color'", heddle("inspect", self.pipeline, check=0).stdout)
        self.refused(self.pipeline, "--input", self.write([[1, 2]], header=["size", "colour"], order=[0, 1]),
                     says=("lacks 1 of the 2 columns", "'color'", "'colour'"))

    def test_a_pipeline_without_a_number_of_rows_takes_any(self):
        inspected = json.loads(heddle("inspect", self.open, "--json", check=0).stdout)
        self.assertEqual([block["rows"] for block in inspected["blocks"]], [2048, 128, 16, 1])
        file = self.path / "open.csv"
        for count in (1, 17, 40):
            rows = [([*COLORS, "pink"][i % 4], (i % 7) / 2) for i in range(count)]
            with open(file, "w", newline="") as out:
                csv.writer(out).writerows([("color", "size"), *rows])
            found = self.told(self.open, "--input", file)
            self.assertEqual(len(found), count)
            for outputs, (color, size) in zip(found, rows):
                for name, probability in zip(CLASSES, pipeline_scores(color, size)):
                    self.assertAlmostEqual(outputs["scores"][name], probability, places=5)
        heddle("run", self.open, "--input", file, "--check", self.path / "open.onnx", check=0)

    def test_without_a_file_nothing_is_different(self):
        summary = heddle("run", self.three, check=0).stdout
        self.assertIn("scores: f32[4,3]  min ", summary)
        self.assertIn("columns 'age', 'income' and 'height'", heddle("inspect", self.three, check=0).stdout)
        inspected = json.loads(heddle("inspect", self.three, "--json", check=0).stdout)
        self.assertEqual(inspected["inputs"][0]["columns"], NAMES)
        self.assertEqual(inspected["outputs"][0]["columns"], ["0", "1", "2"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
