"""Random calls on buffers, beside bytearrays. TIERMEM_TEST_SEED repeats a run."""

import os
import random
import tempfile
import unittest

import tiermem


class Model(unittest.TestCase):
    def test_random_calls_beside_plain_bytes(self):
        seed = int(os.environ.get("TIERMEM_TEST_SEED") or random.randrange(1 << 32))
        with self.subTest(seed=seed):
            self.run_calls(random.Random(seed), int(os.environ.get("TIERMEM_TEST_CALLS") or 1500))

    def run_calls(self, rng, calls):
        with tempfile.TemporaryDirectory() as folder:
            context = tiermem.Context(f"dram=12M; nvme={folder}:256M")
            pairs = []
            for _ in range(calls):
                if len(pairs) < 6 and rng.random() < 0.1:
                    size = rng.choice([1, 100, 5000, 1 << 20, 3 << 20, (8 << 20) + 123])
                    mapped = context.can_map and rng.random() < 0.4
                    pairs.append((context.alloc(size, mapped=mapped), bytearray(size)))
                elif pairs:
                    self.call(rng, context, pairs)
            for buffer, plain in pairs:
                self.assertEqual(buffer.read(), bytes(plain))
            del buffer, pairs
            context.close()

    def call(self, rng, context, pairs):
        at = rng.randrange(len(pairs))
        buffer, plain = pairs[at]
        offset = rng.randrange(len(plain))
        length = rng.randint(1, min(len(plain) - offset, rng.choice([1, 100, 70_000, 4 << 20])))
        part = slice(offset, offset + length)
        what = rng.choice(["view", "view", "write", "write", "read", "readinto", "evict", "prefetch",
                           "advise", "array", "list", "free"])
        data = rng.randbytes(min(length, 64)) * (length // min(length, 64) + 1)
        data = data[:length]
        if what == "view":
            mode = rng.choice(["r", "rw", "w"])
            with buffer.view(offset, length, mode) as view:
                if mode != "w":
                    self.assertEqual(bytes(view), bytes(plain[part]))
                if mode != "r":
                    view[:] = data
                    plain[part] = data
        elif what == "write":
            buffer.write(data, offset)
            plain[part] = data
        elif what == "read":
            self.assertEqual(buffer.read(offset, length), bytes(plain[part]))
        elif what == "readinto":
            into = bytearray(length)
            self.assertEqual(buffer.readinto(into, offset), length)
            self.assertEqual(into, plain[part])
        elif what == "evict":
            buffer.evict(offset, length)
        elif what == "prefetch":
            op = buffer.prefetch(offset, length)
            if rng.random() < 0.5:
                op.wait()
        elif what == "advise":
            advice = rng.choice(["cold", "will_need", "random", "sequential", "frozen", "dont_need"])
            if advice == "dont_need":
                buffer.advise(advice)
                plain[:] = bytes(len(plain))
            else:
                buffer.advise(advice, offset, length)
        elif what == "array" and buffer.mapped:
            memory = memoryview(buffer)
            self.assertEqual(bytes(memory[part]), bytes(plain[part]))
            memory[part] = data
            plain[part] = data
            memory.release()
        elif what == "list":
            views = context.acquire([(buffer, offset, length) for buffer, _ in [pairs[at]] * 2])
            self.assertEqual(bytes(views[0]), bytes(views[1]))
        elif what == "free" and rng.random() < 0.2:
            buffer.free()
            del pairs[at]


if __name__ == "__main__":
    unittest.main()
