"""ONNX Runtime over tiermem's memory, beside ONNX Runtime alone with the same options.

Skipped without onnxruntime and onnx. scripts/wheel --frameworks installs them from PyPI and runs this.
"""

import gc
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest

import tiermem

try:
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper

    import tiermem.ort
except ModuleNotFoundError:
    onnxruntime = None

WIDTH, LAYERS = 1024, 8  # 32 MiB of weights,
DRAM = 8 << 20  # and a budget of a quarter.


def external(name, data_type, shape, offset, length, location="weights.bin"):
    tensor = onnx.TensorProto(name=name, data_type=data_type, data_location=TensorProto.EXTERNAL)
    tensor.dims.extend(shape)
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def save(path, nodes, inputs, outputs, initializers):
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


def layers(folder, order=range(LAYERS), name="model.onnx"):
    """Make a model with nodes that use the weights in this order. Return its path."""
    rng = np.random.default_rng(3)
    size = WIDTH * WIDTH * 4
    with open(os.path.join(folder, "weights.bin"), "wb") as file:
        for _ in range(LAYERS):
            file.write(rng.standard_normal((WIDTH, WIDTH), dtype=np.float32) * (2 / WIDTH) ** 0.5)
    nodes, last = [], "x"
    for at in order:
        nodes.append(helper.make_node("MatMul", [last, f"w{at}"], [f"m{at}"]))
        nodes.append(helper.make_node("Relu", [f"m{at}"], [f"r{at}"]))
        last = f"r{at}"
    return save(
        os.path.join(folder, name), nodes,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, WIDTH])],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, [None, WIDTH])],
        [external(f"w{i}", TensorProto.FLOAT, [WIDTH, WIDTH], i * size, size) for i in range(LAYERS)],
    )  # fmt: skip


def plain_options():
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.disable_prepacking", "1")
    options.log_severity_level = 3
    return options


def plain(path):
    return onnxruntime.InferenceSession(path, plain_options(), providers=["CPUExecutionProvider"])


def wait_until(condition):
    end = time.monotonic() + 60
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("nothing happened for a minute")
        time.sleep(0.001)


def batch(seed=0):
    return {"x": np.random.default_rng(seed).standard_normal((4, WIDTH), dtype=np.float32)}


@unittest.skipUnless(onnxruntime, "onnxruntime or onnx is not installed")
class Ort(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = self.temporary.name
        self.context = tiermem.Context(f"dram={DRAM}; nvme={self.folder}:64M")
        if not self.context.can_map:
            self.skipTest("this machine has no mapped buffers")

    def tearDown(self):
        gc.collect()
        self.context.close(force=True)
        self.temporary.cleanup()

    def check_runs(self, path, **arguments):
        expected = [plain(path).run(None, batch(seed))[0] for seed in range(4)]
        session = tiermem.ort.session(path, context=self.context, **arguments)
        for seed in range(4):
            np.testing.assert_array_equal(session.run(None, batch(seed))[0], expected[seed], strict=True)
        return session

    def test_results_are_those_of_onnxruntime_alone_to_the_bit(self):
        session = self.check_runs(layers(self.folder))
        stats = self.context.stats()
        self.assertGreater(stats["evicted_clean"], 2 * LAYERS * WIDTH * WIDTH * 4)
        self.assertEqual(stats["demoted"], 0)  # Nothing is written.
        self.assertLessEqual(self.context.tiers[0]["used"], DRAM)
        self.assertEqual(len(session.buffers), 1)
        self.assertIsInstance(session, onnxruntime.InferenceSession)

    def test_weights_used_in_another_order_than_that_of_the_file_are_read_ahead(self):
        order = [5, 2, 7, 0, 3, 6, 1, 4]
        self.check_runs(layers(self.folder, order), ahead=4 << 20)
        self.assertGreater(self.context.stats()["prefetched"], 0)

    def test_the_next_groups_are_read_when_a_group_is_touched(self):
        session = tiermem.ort.session(layers(self.folder), context=self.context, ahead=2 << 20)
        reader = session._reader
        memory = memoryview(next(iter(session.buffers.values())))

        def is_read(group):  # But for the wire.
            return sum(map(tiermem.ort._is_absent, reader._groups[group])) <= 1

        with reader.reading():
            wait_until(lambda: is_read(0) and is_read(1))
            self.assertFalse(is_read(8))
            for _, offset, _ in reader._groups[1]:
                memory[offset]
            wait_until(lambda: is_read(2) and is_read(3))
            for _, offset, _ in reader._groups[6]:  # The run skips groups.
                memory[offset]
            wait_until(lambda: is_read(7) and is_read(8))
        memory.release()

    def test_a_part_stays_in_memory_between_runs(self):
        path = layers(self.folder)
        read = []
        for keep in (0, None):
            with tiermem.Context(f"dram={3 * DRAM}; nvme={self.folder}:64M") as self.context:
                session = self.check_runs(path, keep=keep)
                stats = self.context.stats()
                read.append(stats["promoted"] + stats["prefetched"])
                self.assertEqual(list(session.ranges), [f"w{i}" for i in range(LAYERS)])
                del session
        self.assertLess(read[1], read[0])

    def test_a_model_that_fits_is_read_once(self):
        self.check_runs(layers(self.folder), dram=128 << 20)
        stats = self.context.stats()
        self.assertLessEqual(stats["promoted"] + stats["prefetched"], LAYERS * WIDTH * WIDTH * 4)
        self.assertEqual(stats["evicted_clean"], 0)

    def test_no_block_tier_is_needed(self):
        with tiermem.Context(f"dram={DRAM}; nvme=off") as context:
            path = layers(self.folder)
            expected = plain(path).run(None, batch())[0]
            session = tiermem.ort.session(path, context=context)
            for _ in range(2):
                np.testing.assert_array_equal(session.run(None, batch())[0], expected)
            del session

    def test_every_element_type(self):
        for data_type, (name, bits, _) in tiermem._onnx.TYPES.items():
            with self.subTest(type=name):
                data = np.random.default_rng(1).integers(0, 2 if name == "bool" else 100, 96 * bits // 8)
                with open(os.path.join(self.folder, "weights.bin"), "wb") as file:
                    file.write(b"abc" + data.astype(np.uint8).tobytes())  # Not aligned.
                path = save(
                    os.path.join(self.folder, "types.onnx"),
                    [helper.make_node("Cast", ["w"], ["y"], to=TensorProto.FLOAT)], [],
                    [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 24])],
                    [external("w", data_type, [4, 24], 3, 96 * bits // 8)],
                )  # fmt: skip
                try:
                    expected = plain(path).run(None, {})[0]
                except Exception as error:  # onnxruntime has no public name for this class.
                    if type(error).__name__ != "NotImplemented":
                        raise
                    self.skipTest(f"this onnxruntime has no Cast from {name}")
                session = tiermem.ort.session(path, context=self.context, least=1)
                np.testing.assert_array_equal(session.run(None, {})[0], expected)

    def test_other_ways_to_run(self):
        path = layers(self.folder)
        expected = plain(path).run(None, batch())[0]
        session = tiermem.ort.session(path, context=self.context)
        value = onnxruntime.OrtValue.ortvalue_from_numpy(batch()["x"])
        name = session.get_outputs()[0].name
        [output] = session.run_with_ort_values([name], {"x": value})
        np.testing.assert_array_equal(output.numpy(), expected)
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", value)
        binding.bind_output(name)
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], expected)
        with self.assertRaisesRegex(NotImplementedError, "call run"):
            session.run_async(None, batch(), None, None)

    def test_runs_in_several_threads(self):
        path = layers(self.folder, [3, 1, 0, 2, 7, 6, 5, 4])
        expected = [plain(path).run(None, batch(seed))[0] for seed in range(4)]
        session = tiermem.ort.session(path, context=self.context, ahead=2 << 20)
        results = {}

        def run(seed):
            results[seed] = session.run(None, batch(seed))[0]

        threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for seed in range(4):
            np.testing.assert_array_equal(results[seed], expected[seed])

    def test_two_sessions_over_one_file(self):
        first = layers(self.folder)
        second = layers(self.folder, reversed(range(LAYERS)), "other.onnx")
        expected = [plain(path).run(None, batch())[0] for path in (first, second)]
        sessions = [tiermem.ort.session(path, context=self.context) for path in (first, second)]
        for _ in range(2):
            for session, result in zip(sessions, expected):
                np.testing.assert_array_equal(session.run(None, batch())[0], result)
        self.assertLessEqual(self.context.tiers[0]["used"], DRAM)
        del sessions[0], session
        gc.collect()
        np.testing.assert_array_equal(sessions[0].run(None, batch())[0], expected[1])

    def test_the_end_of_a_session_frees_its_buffers_and_its_results_stay(self):
        session = tiermem.ort.session(layers(self.folder), context=self.context)
        result = session.run(None, batch())[0]
        copy = result.copy()
        self.assertGreater(self.context.tiers[0]["used"], 0)
        del session
        gc.collect()
        self.assertEqual(self.context.stats_by_label(), [])
        np.testing.assert_array_equal(result, copy)

    def test_a_weight_that_is_an_output_survives_the_session(self):
        size = WIDTH * WIDTH * 4
        layers(self.folder)
        path = save(
            os.path.join(self.folder, "output.onnx"), [helper.make_node("Neg", ["w0"], ["y"])], [],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, [WIDTH, WIDTH]) for name in ("y", "w0")],
            [external("w0", TensorProto.FLOAT, [WIDTH, WIDTH], 0, size)],
        )  # fmt: skip
        session = tiermem.ort.session(path, context=self.context)
        outputs = session.run_with_ort_values(["y", "w0"], {})
        begin = session.buffers[os.path.join(self.folder, "weights.bin")].address
        self.assertFalse(any(begin <= each.data_ptr() < begin + size for each in outputs))
        np.testing.assert_array_equal(-outputs[0].numpy(), outputs[1].numpy())

    def test_the_path_is_bytes(self):
        session = tiermem.ort.session(os.fsencode(layers(self.folder)), context=self.context)
        self.assertTrue(all(isinstance(path, str) for path in session.buffers))

    def test_a_closed_context_is_an_error_of_the_next_run(self):
        session = tiermem.ort.session(layers(self.folder), context=self.context)
        session.run(None, batch())
        with session._running(), self.assertRaisesRegex(tiermem.Busy, "a run of"):
            self.context.close()
        session.run(None, batch())
        self.context.close()
        with self.assertRaisesRegex(tiermem.ShutDown, "model.onnx was closed"):
            session.run(None, batch())

    def test_a_session_outlives_the_name_of_its_context(self):
        path = layers(self.folder)
        expected = plain(path).run(None, batch())[0]
        session = tiermem.ort.session(path, context=tiermem.Context(f"dram={DRAM}; nvme={self.folder}:64M"))
        gc.collect()
        np.testing.assert_array_equal(session.run(None, batch())[0], expected)

    def test_a_file_that_is_cut_while_it_is_in_use_ends_the_run(self):
        path = layers(self.folder)
        code = f"""
            import os, sys, tiermem, tiermem.ort, numpy as np
            context = tiermem.Context("dram={DRAM}; nvme={self.folder}:64M; log=error")
            session = tiermem.ort.session({path!r}, context=context)
            os.truncate({os.path.join(self.folder, "weights.bin")!r}, 4096)
            session.run(None, {{"x": np.ones((1, {WIDTH}), np.float32)}})
        """
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, -signal.SIGBUS)
        self.assertIn("weights.bin", done.stderr)


@unittest.skipUnless(onnxruntime, "onnxruntime or onnx is not installed")
class Refusals(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = self.temporary.name

    def tearDown(self):
        self.temporary.cleanup()

    def refuse(self, error, message, *initializers):
        path = save(os.path.join(self.folder, "bad.onnx"), [], [], [], initializers)
        with self.assertRaisesRegex(error, message):
            tiermem.ort.session(path)

    def put(self, nbytes):
        with open(os.path.join(self.folder, "weights.bin"), "wb") as file:
            file.write(bytes(nbytes))

    def test_a_file_of_weights_is_missing(self):
        self.refuse(FileNotFoundError, r"weight 'w' of .*bad.onnx is in .*weights.bin, which does not exist",
                    external("w", 1, [1000, 1000], 0, 4_000_000))

    def test_a_file_of_weights_is_truncated(self):
        self.put(100)
        self.refuse(ValueError, "ends at byte 4000096 of .*, which has 100 bytes",
                    external("w", 1, [1000, 1000], 96, 4_000_000))

    def test_a_length_does_not_fit_the_shape(self):
        self.put(100_000)
        self.refuse(ValueError, r"has 99996 bytes .* shape \[100, 250\] of float32 needs 100000",
                    external("w", 1, [100, 250], 0, 99_996))

    def test_an_element_type_is_unknown(self):
        self.put(100_000)
        self.refuse(ValueError, "has the element type 14 of ONNX; accepted are float32",
                    external("w", TensorProto.COMPLEX64, [12500], 0, 100_000))

    def test_a_file_outside_the_folder_of_the_model_is_refused(self):
        for location in ("../weights.bin", "/etc/passwd", "a/../../weights.bin"):
            self.refuse(ValueError, "not in the folder of the model",
                        external("w", 1, [100, 250], 0, 100_000, location))

    def test_a_model_without_external_data(self):
        self.refuse(ValueError, "no external data of at least 65536 bytes for one weight, and .* inside",
                    onnx.numpy_helper.from_array(np.ones(100_000, np.float32), "w"))

    def test_a_file_that_is_no_model(self):
        path = os.path.join(self.folder, "noise.onnx")
        for content in (b"", b"\0" * 1000, b"GGUF" * 1000, bytes(range(256))):
            with open(path, "wb") as file:
                file.write(content)
            with self.assertRaisesRegex(ValueError, "noise.onnx is not an ONNX model"):
                tiermem.ort.session(path)

    def test_a_model_that_is_cut_anywhere(self):
        self.put(100_000)
        path = save(os.path.join(self.folder, "bad.onnx"), [helper.make_node("Neg", ["w"], ["y"])], [], [],
                    [external("w", 1, [100, 250], 0, 100_000)])
        table = tiermem._onnx.read_table(path)
        with open(path, "rb") as file:
            whole = file.read()
        refused = 0
        for size in range(len(whole)):
            with open(path, "wb") as file:
                file.write(whole[:size])
            try:
                self.assertEqual(tiermem._onnx.read_table(path), table)  # It is cut behind the graph.
            except ValueError:
                refused += 1
        self.assertGreater(refused, len(whole) // 2)

    def test_the_model_is_missing(self):
        with self.assertRaisesRegex(FileNotFoundError, "none.onnx"):
            tiermem.ort.session(os.path.join(self.folder, "none.onnx"))


@unittest.skipUnless(onnxruntime, "onnxruntime or onnx is not installed")
class Table(unittest.TestCase):
    def read(self, nodes, initializers):
        with tempfile.TemporaryDirectory() as folder:
            return tiermem._onnx.read_table(save(os.path.join(folder, "m.onnx"), nodes, [], [], initializers))

    def test_the_order_is_that_of_the_nodes_and_of_their_graphs(self):
        inner = helper.make_graph([helper.make_node("Neg", ["b"], ["n"])], "then", [], [])
        other = helper.make_graph([helper.make_node("Neg", ["d"], ["n"])], "else", [], [])
        table = self.read(
            [helper.make_node("MatMul", ["c", "b"], ["x"]),
             helper.make_node("If", ["a"], ["y"], then_branch=inner, else_branch=other)],
            [external(name, 1, [2], 8 * i, 8) for i, name in enumerate("abcde")],
        )  # fmt: skip
        self.assertEqual(table.order, ["c", "b", "a", "d"])
        self.assertEqual(list(table.external), list("abcde"))

    def test_embeddings_are_read_by_rows(self):
        table = self.read(
            [helper.make_node("Gather", ["a", "i"], ["x"]), helper.make_node("Gather", ["b", "i"], ["z"]),
             helper.make_node("Gather", ["x", "c"], ["v"]), helper.make_node("MatMul", ["x", "b"], ["y"])],
            [external(name, 1, [2], 8 * i, 8) for i, name in enumerate("abc")],
        )  # fmt: skip
        self.assertEqual(table.by_rows, {"a"})

    def test_a_length_may_be_absent(self):
        tensor = external("a", 1, [3, 5], 8, 0)
        del tensor.external_data[2]
        self.assertEqual(self.read([], [tensor]).external["a"].length, 60)

    def test_weights_inside_the_model_are_counted(self):
        table = self.read([], [onnx.numpy_helper.from_array(np.ones(1000, np.float32), "w")])
        self.assertFalse(table.external)
        self.assertGreater(table.embedded_bytes, 4000)


class Installation(unittest.TestCase):
    def test_a_missing_package_is_named(self):
        code = "import sys; sys.modules['onnxruntime'] = sys.modules['numpy'] = None; import tiermem.ort"
        done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
        self.assertRegex(done.stderr, r"tiermem.ort: \w+ is not installed; pip install 'tiermem\[ort\]'")


if __name__ == "__main__":
    unittest.main()
