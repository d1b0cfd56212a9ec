"""The adapters of vLLM, LMCache and SGLang, through each engine's own factory and configuration.

Each test is skipped if its engine is not installed. scripts/wheel --engines installs them from PyPI,
without the parts of the engines that need a GPU; these are replaced by empty modules here.
"""

import hashlib
import importlib.util
import mmap
import os
import random
import select
import sys
import tempfile
import time
import types
import unittest

import tiermem


def damage(folder):
    """Overwrite three bytes in each 64 KiB of the files that this process has open in the folder."""
    for name in os.listdir("/proc/self/fd"):
        path = f"/proc/self/fd/{name}"
        try:
            target = os.readlink(path)
        except OSError:
            continue
        if target.startswith(folder):
            with open(path, "r+b", buffering=0) as file:
                for at in range(1000, file.seek(0, os.SEEK_END), 65536):
                    file.seek(at)
                    file.write(b"bad")


def is_there(*names):
    return all(importlib.util.find_spec(name) for name in names)


class Engine(unittest.TestCase):
    SLOTS = 32
    SIZE = 256 << 10
    OBJECTS = 96  # More than DRAM holds.

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.tiers = f"dram=8M; nvme={self.folder.name}:256M"

    def tearDown(self):
        self.folder.cleanup()

    def content(self, number):
        return random.Random(number).randbytes(64) * (self.SIZE // 64)


@unittest.skipUnless(is_there("vllm", "numpy", "torch"), "vLLM is not installed")
class Vllm(Engine):
    def make(self):
        import numpy as np

        mapping = types.ModuleType("canonical_mapping")
        mapping.canonical_format_id = lambda layout: layout  # The module imports the whole engine.
        sys.modules["vllm.distributed.kv_transfer.kv_connector.v1.offloading.canonical_mapping"] = mapping
        from vllm.v1.kv_offload import config as kv
        from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory

        self.memory = np.frombuffer(mmap.mmap(-1, self.SLOTS * self.SIZE), np.uint8)
        self.memory = self.memory.reshape(self.SLOTS, self.SIZE)
        config = kv.OffloadingConfig(
            groups=(kv.OffloadingGroupConfig(16, ("l0",), 0),),
            worker_kv_bytes_per_block=self.SIZE,
            enable_kv_cache_events=False,
            extra_config={},
            engine_id="e0",
            model=kv.OffloadingModelConfig("m", "float16"),
            cache=kv.OffloadingCacheConfig(16, 1),
            parallel=kv.OffloadingParallelConfig(0, 1, 1, 1, 1, 1, 0, 1, None, False),
        )
        events = types.SimpleNamespace(enable_kv_cache_events=False)
        spec = types.SimpleNamespace(config=config, blocks_per_chunk=1, extra_config={},
                                     kv_events_config=events)  # fmt: skip
        wanted = {"type": "TiermemTier", "module_path": "tiermem.vllm", "tiers": self.tiers,
                  "capacity": "200M"}  # fmt: skip
        return SecondaryTierFactory.create_secondary_tier(wanted, memoryview(self.memory), spec)

    def run_job(self, tier, number, keys, slots, loads):
        import numpy as np
        from vllm.v1.kv_offload.base import ReqContext
        from vllm.v1.kv_offload.tiering.base import TransferJob

        context = (
            ReqContext(req_id="r") if "req_id" in ReqContext.__dataclass_fields__ else ReqContext()
        )
        job = TransferJob(number, keys, np.array(slots), loads, context)
        (tier.submit_load if loads else tier.submit_store)(job)
        if number % 3 == 0:
            tier.drain_jobs()
        ended = []
        while not ended:
            ended = list(tier.get_finished_jobs())
            time.sleep(0.0005)
        self.assertEqual([each.job_id for each in ended], [number])
        return ended[0]

    def test_blocks_of_its_own_factory(self):
        import numpy as np
        from vllm.v1.kv_offload.base import LookupResult, make_offload_key

        tier = self.make()
        keys = [make_offload_key(hashlib.sha256(b"%d" % i).digest(), 0) for i in range(self.OBJECTS)]
        self.assertEqual(tier.lookup(keys[0], None), LookupResult.MISS)
        for at in range(0, self.OBJECTS, 8):
            for i in range(8):
                self.memory[i] = np.frombuffer(self.content(at + i), np.uint8)
            self.assertTrue(self.run_job(tier, at, keys[at : at + 8], range(8), False).success)
        self.assertFalse(tier.has_pending_work())
        self.assertEqual(tier.lookup(keys[5], None), LookupResult.HIT)
        for at in range(0, self.OBJECTS, 8):
            self.memory[8:16] = 0
            self.assertTrue(self.run_job(tier, at + 1, keys[at : at + 8], range(8, 16), True).success)
            for i in range(8):
                self.assertEqual(self.memory[8 + i].tobytes(), self.content(at + i))
        damage(self.folder.name)
        failed = wrong = 0
        for at in range(0, self.OBJECTS, 8):
            self.memory[8:16] = 0
            told = self.run_job(tier, at + 2, keys[at : at + 8], range(8, 16), True)
            good = set(keys[at : at + 8]) if told.success else set(told.successful_keys or ())
            failed += 8 - len(good)
            wrong += sum(
                keys[at + i] in good and self.memory[8 + i].tobytes() != self.content(at + i)
                for i in range(8)
            )
        self.assertEqual(wrong, 0)
        self.assertGreater(failed, self.OBJECTS // 2)
        tier.shutdown()


@unittest.skipUnless(is_there("lmcache", "torch"), "LMCache is not installed")
class Lmcache(Engine):
    def test_objects_of_its_own_factory(self):
        import torch
        from lmcache.v1.distributed.api import ObjectKey
        from lmcache.v1.distributed.l2_adapters import native_plugin_l2_adapter as native
        from lmcache.v1.memory_management import MemoryFormat, MemoryObjMetadata, TensorMemoryObj

        config = native.NativePluginL2AdapterConfig.from_dict(
            {"module_path": "tiermem.lmcache", "class_name": "TiermemConnector",
             "adapter_params": {"tiers": self.tiers, "capacity": "200M"}}  # fmt: skip
        )
        adapter = native._create_native_plugin_l2_adapter(config)
        arena = torch.frombuffer(mmap.mmap(-1, self.SLOTS * self.SIZE), dtype=torch.uint8)
        arena = arena.view(self.SLOTS, self.SIZE)

        def memory_object(slot):
            known = MemoryObjMetadata.__dataclass_fields__
            wanted = dict(
                shape=torch.Size([self.SIZE]), dtype=torch.uint8, address=slot * self.SIZE,
                phy_size=self.SIZE, ref_count=1, pin_count=0,
                fmt=getattr(MemoryFormat, "BINARY", MemoryFormat.KV_2LTD),
                shapes=[torch.Size([self.SIZE])], dtypes=[torch.uint8],
            )  # fmt: skip
            metadata = MemoryObjMetadata(**{k: v for k, v in wanted.items() if k in known})
            return TensorMemoryObj(arena[slot], metadata, None)

        objects = [memory_object(slot) for slot in range(self.SLOTS)]
        keys = [ObjectKey(hashlib.sha256(b"%d" % i).digest(), "m", 0) for i in range(self.OBJECTS)]

        def wait(fd, ask):
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            for _ in range(1000):
                told = ask()
                if told:
                    return told
                poll.poll(50)
                try:
                    os.eventfd_read(fd)
                except BlockingIOError:
                    pass
            self.fail("no completion came in 50 seconds")

        def load(at):
            arena[8:16] = 0
            task = adapter.submit_lookup_and_lock_task(keys[at : at + 8], {})
            wait(adapter.get_lookup_and_lock_event_fd(),
                 lambda: adapter.query_lookup_and_lock_result(task))  # fmt: skip
            task = adapter.submit_load_task(keys[at : at + 8], objects[8:16])
            told = wait(adapter.get_load_event_fd(), lambda: adapter.query_load_result(task))
            adapter.submit_unlock(keys[at : at + 8])
            return told

        for at in range(0, self.OBJECTS, 8):
            for i in range(8):
                arena[i] = torch.frombuffer(bytearray(self.content(at + i)), dtype=torch.uint8)
            task = adapter.submit_store_task(keys[at : at + 8], objects[:8])
            told = wait(adapter.get_store_event_fd(), adapter.pop_completed_store_tasks)
            self.assertTrue(told[task].is_successful())
        for at in range(0, self.OBJECTS, 8):
            load(at)
            for i in range(8):
                self.assertEqual(bytes(arena[8 + i].numpy()), self.content(at + i))
        damage(self.folder.name)
        wrong = 0
        for at in range(0, self.OBJECTS, 8):
            told = load(at)
            for i in range(8):
                if told.test(i) and bytes(arena[8 + i].numpy()) != self.content(at + i):
                    wrong += 1
        self.assertEqual(wrong, 0)
        adapter.close()


@unittest.skipUnless(is_there("sglang", "torch"), "SGLang is not installed")
class Sglang(Engine):
    def test_pages_of_its_own_factory(self):
        [root] = importlib.util.find_spec("sglang").submodule_search_locations
        for name in ("sglang", "sglang.srt", "sglang.srt.mem_cache"):  # They import the whole engine.
            module = types.ModuleType(name)
            module.__path__ = [os.path.join(root, *name.split(".")[1:])]
            sys.modules[name] = module
        utils = types.ModuleType("sglang.srt.utils")
        utils.__path__ = []
        common = types.ModuleType("sglang.srt.utils.common")
        common.human_readable_int = int
        sys.modules.setdefault("sglang.srt.utils", utils)
        sys.modules.setdefault("sglang.srt.utils.common", common)
        import torch
        from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig
        from sglang.srt.mem_cache.storage.backend_factory import StorageBackendFactory

        extra = {"backend_name": "tiermem", "module_path": "tiermem.sglang",
                 "class_name": "TiermemHiCache", "tiers": self.tiers, "capacity": "200M"}  # fmt: skip
        config = HiCacheStorageConfig(
            tp_rank=0, tp_size=1, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1,
            is_mla_model=False, enable_storage_metrics=False, is_page_first_layout=False,
            model_name="m", extra_config=extra,
        )  # fmt: skip
        backend = StorageBackendFactory.create_backend("dynamic", config, None)
        keys = [f"page {i}" for i in range(self.OBJECTS)]

        def page(number):
            return torch.frombuffer(bytearray(self.content(number)), dtype=torch.uint8)

        for at in range(0, self.OBJECTS, 16):
            self.assertTrue(backend.batch_set(keys[at : at + 16], [page(at + i) for i in range(16)]))
        self.assertEqual(backend.batch_exists([*keys[:4], "none", keys[5]]), 4)
        self.assertFalse(backend.exists("none"))
        into = [torch.zeros(self.SIZE, dtype=torch.uint8) for _ in range(16)]
        for at in range(0, self.OBJECTS, 16):
            told = backend.batch_get(keys[at : at + 16], into)
            for i in range(16):
                self.assertTrue(torch.equal(told[i], page(at + i)))
        self.assertIsNone(backend.get("none", into[0]))

        # The host pool by address, two buffers for each page.
        pool = torch.zeros(8, 2, self.SIZE // 2, dtype=torch.uint8)
        for i in range(8):
            pool[i] = page(i).view(2, -1)
        backend.mem_pool_host = types.SimpleNamespace(
            get_page_buffer_meta=lambda indices: (
                [pool[i, part].data_ptr() for i in indices for part in range(2)],
                [self.SIZE // 2] * (2 * len(indices)),
            )
        )
        names = [f"host {i}" for i in range(8)]
        self.assertEqual(backend.batch_set_v1(names[:4], range(4)), [True] * 4)
        self.assertEqual(backend.batch_exists(names), 4)
        self.assertEqual(backend.batch_get_v1(names[2:6], range(4, 8)), [True, True, False, False])
        self.assertTrue(torch.equal(pool[4], pool[2]) and torch.equal(pool[5], pool[3]))

        damage(self.folder.name)
        missed = wrong = 0
        for at in range(0, self.OBJECTS, 16):
            for i, each in enumerate(backend.batch_get(keys[at : at + 16], into)):
                missed += each is None
                wrong += each is not None and not torch.equal(each, page(at + i))
        self.assertEqual(wrong, 0)
        self.assertGreater(missed, self.OBJECTS // 3)
        backend.clear()
        self.assertFalse(backend.exists(keys[0]))


class WithoutEngines(unittest.TestCase):
    def test_sizes(self):
        from tiermem._sizes import parse

        for text, size in ((5, 5), ("5", 5), ("200G", 200 << 30), ("1.5 TiB", 3 << 39), ("64mib", 64 << 20)):
            self.assertEqual(parse(text), size)
        for wrong in ("", "G", "-1", "1X", "64MB", None):
            with self.assertRaisesRegex(ValueError, "such as '200G'"):
                parse(wrong)



if __name__ == "__main__":
    unittest.main()
