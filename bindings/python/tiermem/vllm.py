"""A secondary tier of vLLM's KV cache offloading, loaded by vLLM from its configuration.

    vllm serve MODEL --kv-transfer-config '{
      "kv_connector": "OffloadingConnector", "kv_role": "kv_both",
      "kv_connector_extra_config": {
        "spec_name": "TieringOffloadingSpec", "cpu_bytes_to_use": 8000000000,
        "secondary_tiers": [{"type": "TiermemTier", "module_path": "tiermem.vllm",
                             "tiers": "dram=2G; nvme=/nvme:200G", "capacity": "200G"}]}}'

The tier is bounded by `capacity`, in memory and on the drives that `tiers` names. Every block is
checked when it comes back: a damaged block is a failed load, and vLLM computes it again.
"""

import time

from vllm.v1.kv_offload.base import LookupResult, Medium
from vllm.v1.kv_offload.tiering.base import (
    JobResult,
    RequestOffloadingContext,
    SecondaryTierManager,
)

import tiermem

from ._sizes import parse

__all__ = ["TiermemTier"]


class TiermemTier(SecondaryTierManager):
    """The tier. Its copies run on threads of tiermem: no call waits, except drain_jobs().

    capacity: bytes of all blocks, as a number or as a text such as "200G".
    tiers: as for tiermem.Context; None: the context that all users in the process share.
    """

    medium = Medium.STORAGE

    def __init__(self, offloading_spec, primary_kv_view, tier_type, capacity, tiers=None,
                 backpressure_detector=None, **ignored):  # fmt: skip
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        self._memory = memoryview(primary_kv_view).cast("B")
        context = tiermem.default() if tiers is None else tiermem.Context(tiers, name="vllm")
        self._store = tiermem.Store(context, parse(capacity), name="vllm")
        self._jobs = {}  # By number: (operation, keys, is it a load, when it began).
        self._writing = {}  # Keys that are being stored, with the number of jobs.

    def lookup(self, key, req_context):
        """Tell whether a block is there, or on its way here."""
        if self._store.exists([bytes(key)])[0]:
            return LookupResult.HIT
        return LookupResult.RETRY if key in self._writing else LookupResult.MISS

    def submit_store(self, job):
        """Start to store blocks."""
        for key in job.keys:
            self._writing[key] = self._writing.get(key, 0) + 1
        self._begin(job, self._store.put_async, False)

    def submit_load(self, job):
        """Start to load blocks."""
        self._begin(job, self._store.get_into_async, True)

    def _begin(self, job, copy, loads):
        size = self.block_size_bytes
        keys = list(job.keys)
        objects = [
            (bytes(key), self._memory[int(chunk) * size : (int(chunk) + 1) * size])
            for key, chunk in zip(keys, job.chunk_ids, strict=True)
        ]
        operation = copy(objects, errors="miss")
        self._jobs[job.job_id] = (operation, keys, loads, time.monotonic())

    def get_finished_jobs(self):
        """Return the results of jobs that have ended."""
        ended = [number for number, (operation, *_) in self._jobs.items() if operation.done()]
        return [self._result(number) for number in ended]

    def _result(self, number):
        operation, keys, loads, begun = self._jobs.pop(number)
        try:
            copied = [each is not None for each in operation.wait()]
        except tiermem.Error:
            copied = [False] * len(keys)
        if not loads:
            for key in keys:
                self._writing[key] -= 1
                if self._writing[key] == 0:
                    del self._writing[key]
        good = [key for key, ok in zip(keys, copied, strict=True) if ok]
        partly = tuple(good) if loads and len(good) != len(keys) else None
        return JobResult(number, len(good) == len(keys), partly, time.monotonic() - begun,
                         len(good) * self.block_size_bytes)  # fmt: skip

    def on_new_request(self, req_context):
        """A new request needs nothing."""
        return RequestOffloadingContext()

    def has_pending_work(self):
        """Tell whether jobs are in progress."""
        return bool(self._jobs)

    def drain_jobs(self):
        """Wait until no job uses the memory of the primary tier. Their results stay to be taken."""
        for operation, *_ in self._jobs.values():
            try:
                operation.wait()
            except (tiermem.Error, ValueError):
                pass  # Its result is told by get_finished_jobs().

    def shutdown(self):
        """End the tier."""
        self.drain_jobs()
        self._jobs.clear()
        self._store.close()
