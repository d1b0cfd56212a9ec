"""Frameworks on a real GPU: memory from tiermem, or unmodified under `tiermem run --gpu`.

Each result is compared with that of the same program in the driver's own memory. Skipped without a
GPU, and for each framework that is not installed. scripts/gpu-suite runs this.
"""

import contextlib
import os
import subprocess
import sys
import textwrap
import unittest

import tiermem

try:
    import torch

    import tiermem.torch
except ModuleNotFoundError:
    torch = None

GPU = torch is not None and torch.cuda.is_available()
MIB = 1 << 20

# Both the plain and the tiered program begin with this. cuBLAS then makes the same sums in the same order.
PREFACE = """
import ctypes, hashlib, os
tier = ctypes.CDLL(None)
tiered = hasattr(tier, "tiermem_gpu_tag")
def call(name, *arguments):
    if tiered:
        status = getattr(tier, name)(*arguments)
        if status != 0:
            tier.tiermem_gpu_error.restype = ctypes.c_char_p
            raise SystemExit(f"{name}: {status}: {tier.tiermem_gpu_error().decode()}")
def pause(tag):
    call("tiermem_gpu_pause", tag, ctypes.c_uint64(0), ctypes.c_uint32(0))
def resume(tag):
    call("tiermem_gpu_resume", tag, ctypes.c_uint64(0), ctypes.c_uint32(0))
def tell(data):
    print(hashlib.sha256(data).hexdigest(), "tiered" if tiered else "plain")
"""

TORCH = """
import torch
torch.manual_seed(3)
call("tiermem_gpu_tag", b"weights")
model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(12)]).cuda()
call("tiermem_gpu_tag", None)
optimizer = torch.optim.Adam(model.parameters())
for step in range(6):
    batch = torch.randn(256, 1024, device="cuda")
    loss = (model(batch) - batch.roll(1, 1)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 3:
        pause(b"weights")
        resume(b"weights")
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
tell(b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters()))
"""

CUPY = """
import cupy
a = cupy.arange(4 << 20, dtype=cupy.int64).reshape(2048, 2048)
pause(None)
resume(None)
tell(cupy.asnumpy(a[::-1] * 3 + a.T).tobytes())
"""

JAX = """
import jax, numpy
a = jax.numpy.arange(4 << 20, dtype=numpy.int32).reshape(2048, 2048)
b = jax.jit(lambda x: (x[::-1] * 3 + x.T).sort(axis=1))(a)
tell(numpy.asarray(b).tobytes())
"""


def memory_free():
    torch.cuda.synchronize()
    return torch.cuda.mem_get_info()[0]


@unittest.skipUnless(GPU, "needs PyTorch and a GPU")
class Pools(unittest.TestCase):
    def setUp(self):
        self.context = tiermem.Context("dram=2G; nvme=off; gpu=0:1G")
        self.addCleanup(self.context.close)

    @contextlib.contextmanager
    def pool(self, tag):
        pool = tiermem.torch.cuda_pool(self.context)
        with torch.cuda.use_mem_pool(pool), tiermem.torch.gpu_set(tag):
            yield
        self.addCleanup(lambda: pool)  # Lives until the test has ended.

    def test_set_is_paused_then_its_memory_is_free_and_its_bytes_come_back(self):
        with self.pool("kv"):
            cache = torch.arange(128 * MIB // 4, dtype=torch.int32, device="cuda")
        address, before = cache.data_ptr(), memory_free()
        self.context.gpu_pause("kv")
        self.assertGreaterEqual(memory_free() - before, 128 * MIB)
        self.context.gpu_resume("kv")
        self.assertEqual(cache.data_ptr(), address)
        self.assertTrue(torch.equal(cache.cpu(), torch.arange(128 * MIB // 4, dtype=torch.int32)))

    def test_one_set_sleeps_while_the_other_computes(self):
        with self.pool("weights"):
            weights = torch.ones(64 * MIB // 4, device="cuda")
        with self.pool("kv"):
            cache = torch.full((64 * MIB // 4,), 2.0, device="cuda")
        self.context.gpu_pause("kv")
        for _ in range(10):
            weights += 1
        torch.cuda.synchronize()
        self.context.gpu_resume("kv")
        self.assertEqual((weights + cache).sum().item(), 13 * (64 * MIB // 4))

    def test_captured_graph_is_replayed_after_its_memory_slept(self):
        with self.pool("kv"):
            cache = torch.zeros(32 * MIB // 4, device="cuda")
        cache += 1  # Kernels are loaded before the capture.
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            cache += 1
        graph.replay()
        torch.cuda.synchronize()
        self.context.gpu_pause("kv")
        self.context.gpu_resume("kv")
        graph.replay()
        self.assertEqual(cache.sum().item(), 3 * (32 * MIB // 4))

    def test_more_than_the_budget_is_out_of_memory_and_the_rest_goes_on(self):
        with self.pool("kv"):
            kept = torch.ones(256 * MIB // 4, device="cuda")
            with self.assertRaises(torch.OutOfMemoryError):
                torch.empty(2048 * MIB, dtype=torch.uint8, device="cuda")
            more = torch.ones(256 * MIB // 4, device="cuda")
        self.assertEqual((kept + more).sum().item(), 2 * (256 * MIB // 4))

    def test_streams_share_a_pool(self):
        with self.pool("kv"):
            streams = [torch.cuda.Stream() for _ in range(4)]
            sums = []
            for number, stream in enumerate(streams):
                with torch.cuda.stream(stream):
                    for _ in range(20):  # Blocks are freed and taken again, by each stream.
                        part = torch.full((8 * MIB // 4,), float(number), device="cuda")
                    sums.append(part.sum())
            torch.cuda.synchronize()
            self.assertEqual([s.item() for s in sums], [n * (8 * MIB // 4) for n in range(4)])


@unittest.skipUnless(GPU, "needs PyTorch and a GPU")
class WholeProcess(unittest.TestCase):
    """The allocator in place of PyTorch's, which a process can choose only at its start."""

    def test_training_has_equal_weights(self):
        begin = """
            import tiermem, tiermem.torch, torch
            context = tiermem.Context("dram=1G; nvme=off; gpu=0:2G")
            torch.cuda.memory.change_current_allocator(tiermem.torch.cuda_allocator(context))
            """
        plain = output(PREFACE + TORCH)
        tiered = output(textwrap.dedent(begin) + PREFACE + TORCH)
        self.assertEqual(tiered.split()[0], plain.split()[0])


def output(program, *wrapper):
    environment = dict(os.environ, CUBLAS_WORKSPACE_CONFIG=":4096:8",
                       XLA_PYTHON_CLIENT_PREALLOCATE="false")
    done = subprocess.run([*wrapper, sys.executable, "-c", program], env=environment,
                          capture_output=True, text=True, timeout=100)
    if done.returncode != 0:
        raise AssertionError(f"{done.returncode}: {done.stdout[-500:]}{done.stderr[-3000:]}")
    return done.stdout


@unittest.skipUnless(GPU, "needs PyTorch and a GPU")
class Unmodified(unittest.TestCase):
    """Under `tiermem run --gpu`. TEST_TIERMEM_PROGRAM names the command if it is not in the package."""

    def check(self, program):
        command = os.environ.get("TEST_TIERMEM_PROGRAM") or os.path.join(
            os.path.dirname(tiermem.__file__), "bin", "tiermem")
        plain = output(PREFACE + program)
        tiered = output(PREFACE + program, command, "run", "--gpu", "0:4G", "--")
        self.assertEqual(plain.split()[1], "plain")
        self.assertEqual(tiered.split(), [plain.split()[0], "tiered"])

    def test_torch_trains_to_equal_weights(self):
        self.check(TORCH)

    def test_cupy_has_equal_bytes(self):
        self.needs("cupy")
        self.check(CUPY)

    def test_jax_has_equal_bytes(self):
        self.needs("jax")
        self.check(JAX)

    def needs(self, module):
        import importlib.util

        if importlib.util.find_spec(module) is None:
            self.skipTest(f"{module} is not installed")


if __name__ == "__main__":
    unittest.main()
