"""A storage backend of SGLang's HiCache, loaded by SGLang from its configuration.

    python -m sglang.launch_server --model-path MODEL --enable-hierarchical-cache
      --hicache-storage-backend dynamic
      --hicache-storage-backend-extra-config '{"backend_name": "tiermem",
        "module_path": "tiermem.sglang", "class_name": "TiermemHiCache", "interface_v1": 1,
        "tiers": "dram=2G; nvme=/nvme:200G", "capacity": "200G"}'

The store is bounded by `capacity`. Every page is checked when it comes back: a damaged page is a miss.
"""

import ctypes

from sglang.srt.mem_cache.hicache_storage import HiCacheStorage

import tiermem

from ._sizes import parse

__all__ = ["TiermemHiCache"]


def _memory_of(tensor):
    """Return the bytes of a contiguous CPU tensor, without a copy."""
    return _memory_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())


def _memory_at(address, size):
    return (ctypes.c_char * size).from_address(address)


class TiermemHiCache(HiCacheStorage):
    """The backend. Calls may block: SGLang makes them from threads of its own."""

    def __init__(self, storage_config, kwargs=None):
        extra = storage_config.extra_config or {}
        if "capacity" not in extra:
            raise ValueError("tiermem: hicache-storage-backend-extra-config has no 'capacity'; set it to a "
                             "size such as '200G'")  # fmt: skip
        tiers = extra.get("tiers")
        context = tiermem.default() if tiers is None else tiermem.Context(tiers, name="sglang")
        self._store = tiermem.Store(context, parse(extra["capacity"]), name="sglang")
        rank = "" if storage_config.is_mla_model else f"_{storage_config.tp_rank}_{storage_config.tp_size}"
        self._suffix = f"_{storage_config.model_name}{rank}"
        self._parts = 1  # Objects for each page of the host pool.

    def _key(self, key, part=""):
        return f"{key}{self._suffix}{part}"

    def get(self, key, target_location=None, target_sizes=None):
        """Load one page into a tensor, and return the tensor or None."""
        return self.batch_get([key], [target_location])[0]

    def batch_get(self, keys, target_locations=None, target_sizes=None):
        """Load pages into tensors. Return each tensor, or None for a page that is not there."""
        objects = [
            (self._key(key), _memory_of(target))
            for key, target in zip(keys, target_locations, strict=True)
        ]
        stored = self._store.get_into(objects, errors="miss")
        return [
            target if each is not None else None
            for target, each in zip(target_locations, stored, strict=True)
        ]

    def set(self, key, value=None, target_location=None, target_sizes=None):
        """Store one page."""
        return self.batch_set([key], [value])

    def batch_set(self, keys, values=None, target_locations=None, target_sizes=None):
        """Store pages. Return whether all were stored."""
        values = [value.contiguous() for value in values]
        objects = [(self._key(key), _memory_of(value)) for key, value in zip(keys, values, strict=True)]
        return None not in self._store.put(objects, errors="miss")

    def exists(self, key):
        """Tell whether a page is there."""
        return self.batch_exists([key]) == 1

    def batch_exists(self, keys, extra_info=None):
        """Return how many of the first keys are there."""
        part = "_0" if self._parts > 1 else ""
        there = self._store.exists([self._key(key, part) for key in keys])
        return there.index(False) if False in there else len(there)

    # Pages of the host pool by address, without a copy in between.

    def _pages(self, keys, host_indices):
        addresses, sizes = self.mem_pool_host.get_page_buffer_meta(host_indices)
        parts = self._parts = len(addresses) // len(keys)
        objects = [
            (self._key(key, f"_{part}" if parts > 1 else ""),
             _memory_at(addresses[i * parts + part], sizes[i * parts + part]))
            for i, key in enumerate(keys)
            for part in range(parts)
        ]  # fmt: skip
        return objects, parts

    def batch_get_v1(self, keys, host_indices, extra_info=None):
        """Load pages of the host pool. Return for each whether it is there as a whole."""
        objects, parts = self._pages(keys, host_indices)
        return self._whole(self._store.get_into(objects, errors="miss"), parts)

    def batch_set_v1(self, keys, host_indices, extra_info=None):
        """Store pages of the host pool. Return for each whether it was stored as a whole."""
        objects, parts = self._pages(keys, host_indices)
        return self._whole(self._store.put(objects, errors="miss"), parts)

    @staticmethod
    def _whole(stored, parts):
        return [None not in stored[at : at + parts] for at in range(0, len(stored), parts)]

    def clear(self):
        """Drop all pages."""
        context, capacity = self._store.context, self._store.stats()["capacity"]
        self._store.close()
        self._store = tiermem.Store(context, capacity, name="sglang")
