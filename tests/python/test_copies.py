"""Copies of lists, from Python."""

import asyncio
import mmap
import tempfile
import unittest

import tiermem

MIB = 1 << 20


class Copies(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.context = tiermem.Context(f"dram=16M; nvme={self.folder.name}:256M")

    def tearDown(self):
        self.context.close()
        self.folder.cleanup()

    def made(self, value, nbytes=4 * MIB):
        buffer = self.context.alloc(nbytes)
        self.assertEqual(self.context.copy([(buffer, 0, bytes([value]) * nbytes, "w")]), nbytes)
        self.context.evict([buffer])
        return buffer

    def test_lists_out_and_in(self):
        buffers = [self.made(i + 1) for i in range(3)]
        memory = mmap.mmap(-1, 12 * MIB)  # It begins at a page.
        view = memoryview(memory)
        items = [(b, 0, view[i * 4 * MIB : (i + 1) * 4 * MIB]) for i, b in enumerate(buffers)]
        self.assertEqual(self.context.copy(items, promote=False), 12 * MIB)
        for i, (_, _, part) in enumerate(items):
            self.assertEqual(part, bytes([i + 1]) * (4 * MIB))
        self.assertEqual(self.context.stats()["promoted"], 0)
        self.assertEqual(buffers[0].info()["resident"], 0)
        small = bytearray(100)  # Aligned to nothing.
        self.context.copy([(buffers[1], 77, small, "r")], promote=False)
        self.assertEqual(small, bytes([2]) * 100)
        self.context.copy([(buffers[1], 77, small)])
        self.assertEqual(buffers[1].info()["resident"], 2 * MIB)

    def test_operations(self):
        async def run():
            backs = [bytearray(4 * MIB) for _ in buffers]
            told = await asyncio.gather(
                *(self.context.copy_async([(b, 0, back)], promote=False)
                  for b, back in zip(buffers, backs))
            )  # fmt: skip
            return told, backs

        buffers = [self.made(i + 1) for i in range(4)]
        told, backs = asyncio.run(run())
        self.assertEqual(told, [4 * MIB] * 4)
        self.assertEqual(backs, [bytes([i + 1]) * (4 * MIB) for i in range(4)])
        self.context.copy_async([(buffers[0], 0, bytearray(4 * MIB))])  # It is not waited for.

    def test_errors(self):
        buffer = self.made(1)
        for items in ([buffer], [(buffer, 0)], [(1, 0, bytearray(1))]):
            with self.assertRaises(TypeError):
                self.context.copy(items)
        with self.assertRaises(BufferError):
            self.context.copy([(buffer, 0, bytes(1))])  # Not writable.
        with self.assertRaisesRegex(ValueError, "item 1 of the list"):
            self.context.copy([(buffer, 0, bytearray(1)), (buffer, 4 * MIB, bytearray(1))])
        self.context.evict([buffer])
        with self.assertRaises(tiermem.Busy):
            self.context.copy([(buffer, 0, bytearray(1))], promote=False, timeout=0)
        self.assertEqual(self.context.copy([]), 0)
        self.context.close()
        with self.assertRaisesRegex(ValueError, "closed"):
            self.context.copy([])


if __name__ == "__main__":
    unittest.main()
