"""The store of objects by key, from Python."""

import asyncio
import os
import random
import tempfile
import unittest

import tiermem
from tiermem import _sizes


class Stores(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.context = tiermem.Context(f"dram=16M; nvme={self.folder.name}:256M")
        self.store = tiermem.Store(self.context, 200 << 20, name="kv")

    def tearDown(self):
        self.store.close()
        self.context.close()
        self.folder.cleanup()

    def test_put_and_get(self):
        self.assertEqual(self.store.put([(b"a", b"12345"), ("b", bytearray(100_000))]), [5, 100_000])
        self.assertEqual(self.store.get("a"), b"12345")
        self.assertEqual(self.store.get(b"b"), bytes(100_000))
        self.assertIsNone(self.store.get("c"))
        self.assertEqual(self.store.exists(["a", "c", b"b"]), [True, False, True])
        into = bytearray(10)
        self.assertEqual(self.store.get_into([("a", into), ("c", bytearray(3))]), [5, None])
        self.assertEqual(into, b"12345\0\0\0\0\0")
        self.assertEqual(self.store.delete(["a", "c"]), [True, False])
        stats = self.store.stats()
        self.assertEqual((stats["objects"], stats["puts"], stats["misses"]), (1, 2, 1))

    def test_more_objects_than_memory(self):
        objects = [(f"key {i}", bytes([i]) * (1 << 20)) for i in range(64)]
        self.store.put(objects)
        back = [(key, bytearray(1 << 20)) for key, _ in objects]
        self.assertEqual(self.store.get_into(back), [1 << 20] * 64)
        self.assertEqual([bytes(b) for _, b in back], [b for _, b in objects])

    def test_operations(self):
        async def run():
            await asyncio.gather(*(self.store.put_async([(str(i), bytes([i]) * 500_000)])
                                   for i in range(20)))  # fmt: skip
            backs = [bytearray(500_000) for _ in range(20)]
            told = await asyncio.gather(*(self.store.get_into_async([(str(i), backs[i])])
                                          for i in range(20)))  # fmt: skip
            return told, backs

        told, backs = asyncio.run(run())
        self.assertEqual(told, [[500_000]] * 20)
        self.assertEqual(backs, [bytes([i]) * 500_000 for i in range(20)])
        self.store.put_async([("dropped", b"1")])  # It is not waited for.
        op = self.store.get_into_async([("0", bytearray(500_000))])
        with self.assertRaisesRegex(BufferError, "1 calls"):
            self.store.close()
        self.assertEqual(op.wait(), [500_000])

    def test_errors(self):
        for call, error, message in (
            (lambda: self.store.put([("", b"1")]), tiermem.InvalidArgument, "a key of 0 bytes"),
            (lambda: self.store.put([("k" * 256, b"1")]), tiermem.InvalidArgument, "256 bytes"),
            (lambda: self.store.put([("k", b"")]), tiermem.InvalidArgument, "an object of 0 bytes"),
            (lambda: self.store.put([(3, b"1")]), TypeError, "bytes or str"),
            (lambda: self.store.put(["k"]), TypeError, "tuple"),
            (lambda: self.store.put([("k", 3)]), TypeError, "bytes-like"),
            (lambda: self.store.get_into([("k", b"1")]), BufferError, "writable"),
            (lambda: self.store.exists("\0\ud800"), UnicodeEncodeError, "surrogates"),
            (lambda: self.store.put([], errors="no"), ValueError, "errors is 'no'"),
            (lambda: tiermem.Store(self.context, 0), tiermem.InvalidArgument, "capacity_bytes is 0"),
            (lambda: tiermem.Store(3, 1), TypeError, "tiermem.Context"),
        ):
            with self.assertRaisesRegex(error, message):
                call()
        small = tiermem.Store(self.context, 8192)
        self.assertEqual(small.put([("a", bytes(9000)), ("b", b"1")], errors="miss"), [None, 1])
        with self.assertRaises(MemoryError):
            small.put([("a", bytes(9000))])
        small.close()
        with self.assertRaisesRegex(ValueError, "is closed"):
            small.get("a")

    def test_random_calls_beside_a_dictionary(self):
        seed = int(os.environ.get("TIERMEM_TEST_SEED") or random.randrange(1 << 32))
        rng = random.Random(seed)
        model = {}
        with self.subTest(seed=seed):
            for _ in range(600):
                key = f"key {rng.randrange(40)}"
                what = rng.random()
                if what < 0.4:
                    value = rng.randbytes(8) * rng.choice([1, 1000, 60_000, 200_000])
                    self.store.put([(key, value)])
                    model[key] = value
                elif what < 0.9:
                    self.assertEqual(self.store.get(key), model.get(key))
                else:
                    self.assertEqual(self.store.delete([key]), [model.pop(key, None) is not None])


class Sizes(unittest.TestCase):
    """Capacities as text: the rules of the library's own options."""

    def test_they_are_those_of_the_library(self):
        for text, size in (
            ("0", 0), ("4096", 4096), ("64K", 64 << 10), ("64k", 64 << 10), ("4G", 4 << 30),
            ("1.5G", 3 << 29), ("2MiB", 2 << 20), ("2mib", 2 << 20), (" 3 T ", 3 << 40), ("5P", 5 << 50),
            ("15E", 15 << 60), ("7B", 7), ("0.123456789G", 132560717), (200, 200),
            ("1.000000001K", 1024),
        ):  # fmt: skip
            with self.subTest(text):
                self.assertEqual(_sizes.parse(text), size)
        for wrong in ("", "G", "200GB", "5KB", "1.5", "1.5B", "16E", "-1", "1e9", "0x10", "1.G", "1 2K", "5Q",
                      "1.1234567890G", "1_000", "\u0663K", -1, 1 << 64, None, 1.5, True):  # fmt: skip
            with self.subTest(wrong), self.assertRaisesRegex(ValueError, "is not a size"):
                _sizes.parse(wrong)

    def test_the_library_agrees(self):
        for text in ("64M", "0.0625G", "65536K", "64MiB", "67108864", "64 m", "64MB", "64.5", "1e8", "5Q",
                     "64.M", "67108864B", "0.0000610352T"):  # fmt: skip
            with self.subTest(text):
                try:
                    with tiermem.Context(f"dram={text}; nvme=off") as context:
                        theirs = context.tiers[0]["budget"]
                except ValueError:
                    theirs = None
                try:
                    ours = _sizes.parse(text)
                except ValueError:
                    ours = None
                self.assertEqual(ours, theirs)


if __name__ == "__main__":
    unittest.main()
