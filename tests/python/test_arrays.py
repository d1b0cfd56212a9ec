"""Arrays of NumPy over buffers and views, and the DLPack protocol. Skipped without NumPy."""

import gc
import io
import json
import os
import struct
import tempfile
import unittest

import tiermem
from tiermem import Tensor

try:
    import numpy as np

    import tiermem.numpy
    import tiermem.safetensors
except ModuleNotFoundError:
    np = None


@unittest.skipUnless(np, "NumPy is not installed")
class Arrays(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.context = tiermem.Context(f"dram=16M; nvme={self.folder.name}:128M")
        if not self.context.can_map:
            self.skipTest("this machine has no mapped buffers")

    def tearDown(self):
        if hasattr(self, "context"):
            self.context.close(force=True)
            self.folder.cleanup()

    def test_an_array_larger_than_memory(self):
        array = tiermem.numpy.zeros((4096, 2048), "float32", context=self.context, label="rows")
        array += np.arange(4096, dtype="float32")[:, None]
        self.assertEqual(float(array.sum(dtype="float64")), 2048 * 4096 * 4095 / 2)
        buffer = tiermem.numpy.buffer_of(array[5:, 3])
        self.assertEqual(buffer.nbytes, array.nbytes)
        self.assertIsNone(tiermem.numpy.buffer_of(np.zeros(3)))
        del array, buffer
        gc.collect()
        self.assertEqual(self.context.stats()["buffers"], 0)

    def test_shapes_and_types(self):
        self.assertEqual(tiermem.numpy.empty(0, context=self.context).shape, (0,))
        self.assertEqual(tiermem.numpy.empty((3, 0, 2), context=self.context).shape, (3, 0, 2))
        record = tiermem.numpy.zeros(10, "i4,f8", context=self.context)
        record["f1"] = 2.5
        self.assertEqual(record["f1"].sum(), 25)
        parts = tiermem.numpy.zeros(3, ("f4", (2, 5)), context=self.context)
        self.assertEqual((parts.shape, parts.dtype), ((3, 2, 5), np.dtype("f4")))
        with self.assertRaisesRegex(TypeError, "references to Python objects"):
            tiermem.numpy.zeros(3, object, context=self.context)

    def test_paths_that_are_bytes_or_not_utf8(self):
        folder = os.fsencode(self.folder.name)
        header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
        for name in (b"plain", b"\xff"):
            array, model = folder + b"/" + name + b".npy", folder + b"/" + name + b".safetensors"
            with open(array, "wb") as file:
                np.save(file, np.arange(10.0))
            with open(model, "wb") as file:
                file.write(struct.pack("<Q", len(header)) + header + np.ones(2, "f4").tobytes())
            for given in (array, os.fsdecode(array)):
                for mode in (None, "r", "c"):
                    with self.subTest(given, mode=mode):
                        self.assertEqual(tiermem.numpy.load(given, mode, context=self.context)[3], 3)
            for given in (model, os.fsdecode(model)):
                with self.subTest(given):
                    with tiermem.safetensors.safe_open(given, "np", context=self.context) as file:
                        self.assertEqual(file.get_tensor("w").tolist(), [1, 1])
                        with self.assertRaises(KeyError) as caught:
                            file.get_tensor("v")
                        str(caught.exception).encode()

    def test_slices_of_scalars_and_of_closed_files(self):
        path = self.write_model(
            "scalar",
            {
                "w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                "s": {"dtype": "F32", "shape": [], "data_offsets": [8, 12]},
            },
            np.array([1, 2, 3], "f4").tobytes(),
        )
        with tiermem.safetensors.safe_open(path, "np", context=self.context) as file:
            for index in ((), ...):
                self.assertEqual(file.get_slice("w")[index].tolist(), [1, 2])
                scalar = file.get_slice("s")[index]
                self.assertEqual((type(scalar), scalar.shape, scalar.tolist()), (np.ndarray, (), 3))
            for index in (0, slice(None), (..., 0)):
                with self.assertRaises(IndexError):
                    file.get_slice("s")[index]
            part = file.get_slice("w")
        for index in (0, slice(None), slice(0, 0), ...):
            with self.assertRaisesRegex(ValueError, "is closed"):
                part[index]

    def test_load(self):
        for name, array in (
            ("c", np.arange(30_000, dtype="<u2").reshape(300, 100)),
            ("fortran", np.asfortranarray(np.arange(600, dtype="f8").reshape(20, 30))),
            ("scalar", np.array(4.5)),
        ):
            path = os.path.join(self.folder.name, name)
            with open(path, "wb") as file:
                np.save(file, array)
            loaded = tiermem.numpy.load(path, context=self.context)
            np.testing.assert_array_equal(loaded, array)
            self.assertEqual(loaded.dtype, array.dtype)
        with open(path, "r+b") as file:
            file.truncate(130)
        with self.assertRaisesRegex(ValueError, "ends after"):
            tiermem.numpy.load(path, context=self.context)

    def test_load_without_a_copy(self):
        rows = np.arange(6_000_000, dtype="<u4").reshape(60_000, 100)  # 24 MB, in memory of 16 MiB.
        path = os.path.join(self.folder.name, "rows.npy")
        for array in (rows, np.asfortranarray(rows[:500]), np.array(4.5), np.zeros((0, 3))):
            np.save(path, array)
            for mode in ("r", "c"):
                loaded = tiermem.numpy.load(path, mmap_mode=mode, context=self.context)
                np.testing.assert_array_equal(loaded, array)
                self.assertEqual((loaded.dtype, loaded.flags.f_contiguous), (array.dtype, array.flags.f_contiguous))
                del loaded
        np.save(path, rows)
        with open(path, "rb") as file:
            before = file.read()
        table = tiermem.numpy.load(path, "r", context=self.context)
        self.assertEqual(tiermem.numpy.buffer_of(table).info()["label"], path)
        chosen = np.random.default_rng(3).integers(0, len(rows), 2000)
        np.testing.assert_array_equal(table[chosen], rows[chosen])
        with self.assertRaisesRegex(ValueError, "read-only"):
            table[0, 0] = 1
        self.assertEqual(self.context.stats()["demoted"], 0)
        copy = tiermem.numpy.load(path, "c", context=self.context, label="mine")
        copy[chosen, 3] = 7
        tiermem.numpy.buffer_of(copy).evict()
        rows[chosen, 3] = 7
        np.testing.assert_array_equal(copy, rows)
        with open(path, "rb") as file:
            self.assertEqual(file.read(), before)

    def test_load_refuses(self):
        path = os.path.join(self.folder.name, "some.npy")
        np.save(path, np.arange(100))
        for mode in ("r+", "w+", "x"):
            with self.assertRaisesRegex(ValueError, "accepted are"):
                tiermem.numpy.load(path, mode, context=self.context)
        os.truncate(path, 200)
        with self.assertRaisesRegex(ValueError, "ends after 72 of 800 bytes"):
            tiermem.numpy.load(path, "r", context=self.context)
        np.save(path, np.array([{}]), allow_pickle=True)
        with self.assertRaisesRegex(TypeError, "references to Python objects"):
            tiermem.numpy.load(path, "r", context=self.context)

    def test_views_and_buffers_by_three_protocols(self):
        buffer = self.context.alloc(1 << 20, mapped=True)
        with buffer.view(mode="rw") as view:
            for of in (view, buffer):
                interface = np.asarray(of)
                dlpack = np.from_dlpack(of)
                typed = np.from_dlpack(Tensor(of, "int32", (100, 5), 40))
                interface[43] = 7
                self.assertEqual(dlpack[43], 7)
                self.assertEqual(typed[0, 0], 7 << 24)
                interface[43] = 0
            del interface, dlpack, typed, of
            gc.collect()

    def test_an_array_keeps_a_view_pinned(self):
        buffer = self.context.alloc(1 << 20)
        array = np.from_dlpack(Tensor(buffer.view(mode="rw"), "uint8", (1 << 20,)))
        gc.collect()
        self.assertEqual(buffer.info()["pinned"], 1 << 20)
        with self.assertRaises(BufferError):
            buffer.free()
        del array
        self.assertEqual(buffer.info()["pinned"], 0)
        buffer.free()

    def test_an_array_outlives_buffer_and_context(self):
        context = tiermem.Context("dram=8M; nvme=off")
        array = np.from_dlpack(context.alloc(1 << 20, mapped=True))
        del context
        gc.collect()
        value = 5 if array.flags.writeable else 0  # NumPy 1 makes such arrays read-only.
        if value:
            array[:] = value
        self.assertEqual(int(array.sum()), value << 20)

    def test_read_only_views(self):
        buffer = self.context.alloc(4096)
        with buffer.view() as view:
            with self.assertRaisesRegex(BufferError, "read-only"):
                view.__dlpack__()
            self.assertFalse(np.asarray(view).flags.writeable)
            if np.lib.NumpyVersion(np.__version__) >= "2.1.0":  # It knows DLPack 1.
                array = np.from_dlpack(view)
                self.assertFalse(array.flags.writeable)
                del array

    def test_bad_exports(self):
        buffer = self.context.alloc(4096, mapped=True)
        for arguments, error, message in (
            (("float3", (1,)), ValueError, "accepted are bfloat16"),
            (("int32", (1025,)), ValueError, "there are 4096 bytes"),
            (("int32", (1,), 4093), ValueError, "there are 4096 bytes"),
            (("int32", (-1,)), ValueError, "0 or more"),
            (("int64", (1 << 40, 1 << 40)), ValueError, "below 2\\*\\*63"),
            (("uint8", (1 << 63,)), ValueError, "below 2\\*\\*63"),
            (("uint8", (1,) * 33), ValueError, "at most 32"),
            (("uint8", ("x",)), TypeError, "int"),
        ):
            with self.subTest(arguments), self.assertRaisesRegex(error, message):
                Tensor(buffer, *arguments).__dlpack__(max_version=(1, 0))
        for arguments in ({"dl_device": (2, 0)}, {"copy": True}):
            with self.subTest(arguments), self.assertRaises(BufferError):
                buffer.__dlpack__(**arguments)
        buffer.__dlpack__()  # The capsule is dropped.
        buffer.free()

    def write_model(self, name, header, data):
        path = os.path.join(self.folder.name, name)
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text + data)
        return path

    def test_safetensors(self):
        data = np.arange(6, dtype="f4").tobytes() + b"\1\0"
        path = self.write_model(
            "good",
            {
                "__metadata__": {"format": "np"},
                "w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
                "b": {"dtype": "BOOL", "shape": [2], "data_offsets": [24, 26]},
                "none": {"dtype": "F32", "shape": [0, 4], "data_offsets": [26, 26]},
            },
            data,
        )
        with tiermem.safetensors.safe_open(path, "np", context=self.context) as file:
            self.assertEqual(file.keys(), ["w", "b", "none"])
            self.assertEqual(file.metadata(), {"format": "np"})
            np.testing.assert_array_equal(file.get_tensor("w"), np.arange(6, dtype="f4").reshape(2, 3))
            self.assertEqual(file.get_tensor("b").tolist(), [True, False])
            self.assertEqual(file.get_tensor("none").shape, (0, 4))
            part = file.get_slice("w")
            self.assertEqual((part.get_shape(), part.get_dtype()), ([2, 3], "F32"))
            self.assertEqual(part[1:].tolist(), [[3, 4, 5]])
            self.assertEqual(part[:, 1].tolist(), [1, 4])
            self.assertEqual(part[1].tolist(), [3, 4, 5])
            self.assertEqual(part[5:].shape, (0, 3))
            with self.assertRaisesRegex(KeyError, "no tensor 'x'"):
                file.get_tensor("x")
        with self.assertRaisesRegex(ValueError, "is closed"):
            file.get_tensor("w")
        with tiermem.safetensors.safe_open(path, "np", writable=True, context=self.context) as file:
            tensor = file.get_tensor("w")
            tensor += 1
            del tensor
            self.assertEqual(file.get_tensor("w").sum(), 21)

    def test_mapped_safetensors(self):
        values = np.arange(3 << 20, dtype="f4")
        header = {"w": {"dtype": "F32", "shape": [3, 1 << 20], "data_offsets": [0, values.nbytes]}}
        path = self.write_model("large", header, values.tobytes())
        try:
            file = tiermem.safetensors.safe_open(path, "np", mapped=True, context=self.context)
        except tiermem.Unsupported:
            self.skipTest("no userfaultfd here")
        tensor = file.get_tensor("w")
        self.assertFalse(tensor.flags.writeable)
        np.testing.assert_array_equal(tensor, values.reshape(3, -1))
        self.assertEqual(file.buffer.info()["pinned"], 0, "a mapped tensor pins nothing")
        self.assertEqual(file.get_slice("w")[1:2, 5].tolist(), [(1 << 20) + 5])
        begin = file.range_of("w")[1]
        self.assertEqual(tensor.ctypes.data % 4096, begin % 4096)
        file.close()
        np.testing.assert_array_equal(tensor[2], values[2 << 20 :])  # It keeps the buffer.
        with tiermem.safetensors.safe_open(
            path, "np", mapped=True, writable=True, context=self.context
        ) as file:
            tensor = file.get_tensor("w")
            tensor += 1
            file.buffer.evict()
            np.testing.assert_array_equal(file.get_tensor("w"), values.reshape(3, -1) + 1)
            self.assertEqual(os.path.getsize(path) - begin, values.nbytes)

    def test_safetensors_that_are_damaged(self):
        good = {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}
        for name, header, data, message in (
            ("empty", b"", b"", "not JSON"),
            ("cut", good, b"1234", "does not fit"),
            ("no_json", b"{{", b"", "not JSON"),
            ("shape", {"w": {**good["w"], "shape": [3]}}, b"12345678", "does not fit"),
            ("type", {"w": {**good["w"], "dtype": "F4"}}, b"12345678", "has the type F4"),
            ("before", {"w": {**good["w"], "data_offsets": [-8, 0]}}, b"12345678", "does not fit"),
            ("list", [], b"", "not a JSON object"),
            ("text", "w", b"", "not a JSON object"),
            ("null", b"null", b"", "not a JSON object"),
            ("deep", b"[" * 100_000, b"", "nested too deeply"),
            ("utf8", b'{"\xff": 1}', b"", "not JSON"),
            ("twice", b'{"w": 1, "w": 2}', b"", "'w' occurs twice"),
            ("entry", {"w": 1}, b"", "'w' has no JSON object"),
            ("no_type", {"w": {"shape": [2], "data_offsets": [0, 8]}}, b"", "'w' has no 'dtype'"),
            ("no_shape", {"w": {"dtype": "F32", "data_offsets": [0, 8]}}, b"", "'w' has no 'shape'"),
            ("no_place", {"w": {"dtype": "F32", "shape": [2]}}, b"", "'w' has no 'data_offsets'"),
            ("list_type", {"w": {**good["w"], "dtype": []}}, b"12345678", r"has the type \[\]"),
            *(
                (f"shape{i}", {"w": {**good["w"], "shape": shape}}, b"12345678", "'w' has the shape")
                for i, shape in enumerate(
                    ("2", 2, None, [-1, -2], [2.0], ["2"], [[2]], [True, True], [1 << 63, 0])
                )
            ),
            ("nan", b'{"w": {"dtype": "F32", "shape": [NaN], "data_offsets": [0, 8]}}', b"", "not JSON"),
            *(
                (f"place{i}", {"w": {**good["w"], "data_offsets": at}}, b"12345678", "'w' has the offsets")
                for i, at in enumerate(("08", 8, None, [0], [0, 8, 8], [0.0, 8.0], ["0", "8"], [False, 8]))
            ),
            ("end", {"w": {**good["w"], "data_offsets": [8, 16]}}, b"12345678", "does not fit"),
            ("overlap", {**good, "v": {**good["w"], "data_offsets": [4, 12]}}, b"123456789012", "overlap"),
            ("metadata", {**good, "__metadata__": []}, b"12345678", "metadata"),
            ("metadata2", {**good, "__metadata__": {"a": 1}}, b"12345678", "metadata"),
        ):
            path = self.write_model(name, header, data)
            with self.subTest(name), self.assertRaisesRegex(ValueError, message) as caught:
                tiermem.safetensors.safe_open(path, "np", context=self.context)
            self.assertIn(path, str(caught.exception))
        path = os.path.join(self.folder.name, "long")
        for content in (b"1234567", struct.pack("<Q", 1 << 60) + b"{}"):
            with io.open(path, "wb") as file:
                file.write(content)
            with self.assertRaisesRegex(ValueError, "is not a safetensors file"):
                tiermem.safetensors.safe_open(path, "np", context=self.context)
        with self.assertRaisesRegex(ValueError, "framework is 'tf'"):
            tiermem.safetensors.safe_open(path, "tf")


if __name__ == "__main__":
    unittest.main()
