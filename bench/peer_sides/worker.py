"""One side of a comparison, in a separate process.

usage: worker.py SIDE ARGUMENTS      ARGUMENTS: a JSON object, see bench/peers
Prints a JSON object: seconds, processor seconds, bytes, and the exclusive or of all loaded 64-bit
words, computed after the clock has stopped. Imports, and objects that a program creates only once (a
handle, an agent), are not timed; allocation of the memory is.
"""
import ctypes
import json
import mmap
import os
import resource
import struct
import sys
import threading
import time

import numpy as np

import tiermem_c

MIB = 1 << 20


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class Clock:
    """Measures the time of a `with` block."""

    def __enter__(self):
        self._cpu = cpu_seconds()
        self._began = time.perf_counter()
        return self

    def __exit__(self, *_):
        self.seconds = time.perf_counter() - self._began
        self.cpu = cpu_seconds() - self._cpu

    def result(self, bytes_: int, words: int = 0) -> dict:
        return {"seconds": self.seconds, "cpu": self.cpu, "bytes": bytes_, "xor": f"{words:016x}"}


def words_of(array) -> int:
    """Returns the exclusive or of the array's 64-bit words."""
    return int(np.bitwise_xor.reduce(np.frombuffer(array, np.uint64)))


def words_of_tensors(tensors) -> int:
    import torch
    total = 0
    for tensor in tensors:
        total ^= words_of(tensor.contiguous().view(torch.uint8).view(-1).numpy())
    return total


def memory(address: int, bytes_: int):
    return (ctypes.c_ubyte * bytes_).from_address(address)


def header_bytes(path: str) -> int:
    """Returns the offset of the tensors in a safetensors file."""
    with open(path, "rb") as file:
        return 8 + struct.unpack("<Q", file.read(8))[0]


# ---- Loading a cold file into private memory ------------------------------------------------------

def load_tiermem(a: dict) -> dict:
    path, size = a["safetensors"], os.path.getsize(a["safetensors"])
    with Clock() as clock:
        context = tiermem_c.Context(a["library"], f"dram={size // MIB + 256}M; nvme=off")
        view = context.acquire(context.adopt(path), tiermem_c.READ)
    begin = header_bytes(path)
    words = words_of(memory(view.data + begin, size - begin))
    context.release(view)
    return clock.result(size, words)


def load_safetensors_clone(a: dict) -> dict:
    import torch  # noqa: F401 - otherwise it is imported when the file is opened.
    from safetensors import safe_open
    with Clock() as clock:
        with safe_open(a["safetensors"], framework="pt") as file:
            tensors = [file.get_tensor(key).clone() for key in file.keys()]
    return clock.result(os.path.getsize(a["safetensors"]), words_of_tensors(tensors))


def load_torch(a: dict) -> dict:
    import torch
    with Clock() as clock:
        tensors = torch.load(a["pt"], map_location="cpu", weights_only=True)
    return clock.result(os.path.getsize(a["pt"]), words_of_tensors(tensors.values()))


def load_numpy_fromfile(a: dict) -> dict:
    with Clock() as clock:
        array = np.fromfile(a["raw"], np.uint8)
    return clock.result(array.nbytes, words_of(array))


def load_numpy_memmap_copy(a: dict) -> dict:
    with Clock() as clock:
        array = np.array(np.memmap(a["raw"], np.uint8, "r"))
    return clock.result(array.nbytes, words_of(array))


def load_fastsafetensors(a: dict) -> dict:
    import torch  # noqa: F401
    from fastsafetensors import fastsafe_open
    with Clock() as clock:
        file = fastsafe_open(filenames=[a["safetensors"]], nogds=True, device="cpu")
        opened = file.__enter__()
        tensors = [opened.get_tensor(key) for key in opened.keys()]
    return clock.result(os.path.getsize(a["safetensors"]), words_of_tensors(tensors))


def load_runai(a: dict) -> dict:
    os.environ.setdefault("RUNAI_STREAMER_CONCURRENCY", "16")
    os.environ["RUNAI_STREAMER_MEMORY_LIMIT"] = "-1"  # No limit: tensors stay where they were read.
    import torch  # noqa: F401
    from runai_model_streamer import SafetensorsStreamer
    with Clock() as clock:
        with SafetensorsStreamer() as streamer:
            streamer.stream_file(a["safetensors"])
            tensors = [tensor for _, tensor in streamer.get_tensors()]
    return clock.result(os.path.getsize(a["safetensors"]), words_of_tensors(tensors))


def load_nixl_posix(a: dict) -> dict:
    from nixl_cu13._api import nixl_agent, nixl_agent_config
    agent = nixl_agent("bench", nixl_agent_config(backends=[]))
    agent.create_backend("POSIX")
    size = os.path.getsize(a["raw"])
    file = os.open(a["raw"], os.O_RDONLY)
    block = 16 * MIB
    with Clock() as clock:
        array = np.empty(size, np.uint8)
        pieces = range(0, size, block)
        agent.register_memory([(array.ctypes.data, size, 0, "to")], "DRAM")
        agent.register_memory([(0, size, file, "from")], "FILE")
        here = agent.get_xfer_descs([(array.ctypes.data + at, min(block, size - at), 0)
                                     for at in pieces], "DRAM")
        there = agent.get_xfer_descs([(at, min(block, size - at), file) for at in pieces], "FILE")
        transfer = agent.initialize_xfer("READ", here, there, "bench")
        state = agent.transfer(transfer)
        while state not in ("DONE", "ERR"):
            state = agent.check_xfer_state(transfer)
    if state == "ERR":
        raise RuntimeError("NIXL: the transfer failed")
    return clock.result(size, words_of(array))


def load_bare_huge(a: dict) -> dict:
    """A minimal loop: huge pages, O_DIRECT, and as many threads as suit the device.

    Without huge pages it uses small ones. The kernel clears the memory during the reads.
    """
    size, block, threads = os.path.getsize(a["raw"]), 4 * MIB, 8
    file = os.open(a["raw"], os.O_RDONLY | os.O_DIRECT)
    failed = []

    def read(first: int) -> None:  # preadv releases the interpreter's lock.
        for at in range(first * block, size, threads * block):
            done = 0
            end = min(at + block, size)
            while at + done < end:
                # A direct read ends at a block; bytes after the file's end are not written.
                got = os.preadv(file, [memory_of[at + done:-(-end // 4096) * 4096]], at + done)
                if got == 0:
                    failed.append(at + done)
                    return
                done += got

    with Clock() as clock:
        mapping = mmap.mmap(-1, -(-size // (2 * MIB)) * 2 * MIB + 2 * MIB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        mapping.madvise(mmap.MADV_HUGEPAGE)
        address = ctypes.addressof(ctypes.c_ubyte.from_buffer(mapping))
        begin = -address % (2 * MIB)
        memory_of = memoryview(mapping)[begin:]
        workers = [threading.Thread(target=read, args=(i,)) for i in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    if failed:
        raise RuntimeError(f"the file ended at {failed[0]}")
    return clock.result(size, words_of(memory_of[:size]))


# ---- A file read in the kernel's memory instead of private memory ----------------------------------

def _touched(a: dict, advise) -> dict:
    size = os.path.getsize(a["raw"])
    with open(a["raw"], "rb") as file:
        with Clock() as clock:
            mapping = mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ)
            advise(mapping)
            array = np.frombuffer(mapping, np.uint64)
            int(np.bitwise_xor.reduce(array[::512]))  # One word of each page.
        return clock.result(size, words_of(array))


def map_normal(a: dict) -> dict:
    return _touched(a, lambda mapping: None)


def map_sequential(a: dict) -> dict:
    return _touched(a, lambda mapping: mapping.madvise(mmap.MADV_SEQUENTIAL))


def map_willneed(a: dict) -> dict:
    return _touched(a, lambda mapping: mapping.madvise(mmap.MADV_WILLNEED))


def map_populate(a: dict) -> dict:
    return _touched(a, lambda mapping: mapping.madvise(22))  # MADV_POPULATE_READ, Linux 5.14.


# ---- A tensor out to disk and back ---------------------------------------------------------------

def _random(bytes_: int, seed: int):
    return np.random.Generator(np.random.SFC64(seed)).integers(0, 1 << 64, bytes_ // 8, np.uint64)


def trip_tiermem(a: dict) -> dict:
    size = a["bytes"]
    with tiermem_c.Context(a["library"], f"dram={size // MIB + 256}M; "
                           f"nvme={a['directory']}:{2 * size // MIB}M") as context:
        buffer = context.alloc(size)
        for seed in (1, 2):  # The first round is not counted, so that the target exists, as DeepSpeed's file does.
            view = context.acquire(buffer, tiermem_c.DISCARD)
            np.frombuffer(memory(view.data, size), np.uint64)[:] = _random(size, seed)
            context.release(view)
            with Clock() as write:
                context.evict(buffer)
            with Clock() as read:
                view = context.acquire(buffer, tiermem_c.READ)
            words = words_of(memory(view.data, size))
            context.release(view)
    return {"write": write.result(size), "read": read.result(size, words),
            "want": f"{words_of(_random(size, 2)):016x}"}


def _trip_deepspeed(a: dict, huge: bool) -> dict:
    out = os.dup(1)
    os.dup2(2, 1)  # It prints about itself on standard output.
    import torch
    from deepspeed.ops.op_builder import AsyncIOBuilder
    size = a["bytes"]
    handle = AsyncIOBuilder().load(verbose=False).aio_handle(*a["setting"])
    tensor = handle.new_cpu_locked_tensor(size, torch.empty(0, dtype=torch.uint8))
    os.dup2(out, 1)
    array = tensor.numpy()
    if huge:
        page = 2 * MIB
        begin = -(-array.ctypes.data // page) * page
        length = (array.ctypes.data + size - begin) // page * page
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(length), 25) != 0:  # MADV_COLLAPSE
            raise RuntimeError(f"MADV_COLLAPSE: {os.strerror(ctypes.get_errno())}")
    path = os.path.join(a["directory"], "deepnvme.bin")
    try:
        for seed in (1, 2):
            array.view(np.uint64)[:] = _random(size, seed)
            with Clock() as write:
                handle.async_pwrite(tensor, path)
                handle.wait()
            array[:] = 0
            with Clock() as read:
                handle.async_pread(tensor, path)
                handle.wait()
    finally:
        os.unlink(path)
    return {"write": write.result(size), "read": read.result(size, words_of(array)),
            "want": f"{words_of(_random(size, 2)):016x}"}


def trip_deepspeed(a: dict) -> dict:
    return _trip_deepspeed(a, False)


def trip_deepspeed_huge(a: dict) -> dict:
    return _trip_deepspeed(a, True)


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](json.loads(sys.argv[2]))))
