"""Limits: a memory control group (version 1 or 2), and swap for a while.

All of this needs root. If something is not available the functions return None or raise Unavailable,
and leave nothing behind.
"""
import contextlib
import os
import signal
import subprocess
import time

ZSWAP = "/sys/module/zswap/parameters/enabled"


class Unavailable(Exception):
    """The reason why something is not available on this machine."""


def _write(path, text):
    with open(path, "w") as file:
        file.write(text)


def _own_path(controller):
    """This process's path in the hierarchy of the controller; of version 2 if it is ""."""
    with open("/proc/self/cgroup") as file:
        for line in file:
            _, names, path = line.rstrip("\n").split(":", 2)
            if controller in names.split(","):
                return path.rstrip("/")
    return ""


class Group:
    """A control group with at most `limit` bytes of memory, page cache included, and any swap."""

    _made = 0

    def __init__(self, path, version):
        self.path = path
        self.version = version

    @classmethod
    def make(cls, limit=None):
        """Returns None if no group can be made. Without `limit` the group only counts."""
        cls._made += 1
        name = f"/tiermem-programs-{os.getpid()}-{cls._made}"
        parents = [("/sys/fs/cgroup/memory" + _own_path("memory"), 1), ("/sys/fs/cgroup/memory", 1)]
        own = _own_path("")
        while True:
            parents += [("/sys/fs/cgroup" + own, 2), ("/sys/fs/cgroup/unified" + own, 2)]
            if not own:
                break
            own = own.rpartition("/")[0]
        for parent, version in parents:
            group = cls(parent + name, version)
            knob = "memory.limit_in_bytes" if version == 1 else "memory.max"
            try:
                os.mkdir(group.path)
            except OSError:
                continue
            try:
                if os.access(f"{group.path}/{knob}", os.W_OK):
                    if limit is not None:
                        _write(f"{group.path}/{knob}", str(limit))
                    return group
            except OSError:
                pass
            os.rmdir(group.path)
        return None

    def enter(self):
        """Moves the calling process into the group, with all processes that it starts later."""
        _write(f"{self.path}/cgroup.procs", "0")

    def anonymous(self):
        wanted = ("total_rss", "total_shmem") if self.version == 1 else ("anon", "shmem")
        try:
            with open(f"{self.path}/memory.stat") as file:
                counts = dict(line.split() for line in file)
        except OSError:
            return 0
        return sum(int(counts.get(name, 0)) for name in wanted)

    def _members(self):
        with open(f"{self.path}/cgroup.procs") as file:
            return [int(line) for line in file]

    def kill(self):
        for pid in self._members():
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass

    def remove(self):
        for _ in range(1000):  # The last process of the group may still be ending.
            try:
                os.rmdir(self.path)
                return
            except OSError:
                time.sleep(0.01)


def _active_swap():
    with open("/proc/swaps") as file:
        return [line.split()[0] for line in file][1:]


@contextlib.contextmanager
def swap(folder, size):
    """Uses the existing swap, or adds a file of `size` bytes in `folder` for the duration."""
    if _active_swap():
        yield
        return
    if os.geteuid() != 0:
        raise Unavailable("swap needs root")
    path = os.path.join(os.path.abspath(folder), "swapfile")
    try:
        with open(path, "wb") as file:
            os.fchmod(file.fileno(), 0o600)
            os.posix_fallocate(file.fileno(), 0, size)
        for command in (["mkswap", path], ["swapon", path]):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                raise Unavailable(f"{command[0]}: {done.stderr.strip()}")
        try:
            yield
        finally:
            subprocess.run(["swapoff", path], check=False)
    except FileNotFoundError as error:
        raise Unavailable(f"{error.filename} is missing") from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            if path not in _active_swap():
                os.unlink(path)


@contextlib.contextmanager
def zswap(on):
    """Switches the kernel's compressed swap cache on or off for the duration."""
    if not os.access(ZSWAP, os.W_OK):
        if on:
            raise Unavailable("this kernel has no zswap, or this is not root")
        yield
        return
    with open(ZSWAP) as file:
        before = file.read().strip()
    _write(ZSWAP, "Y" if on else "N")
    try:
        yield
    finally:
        _write(ZSWAP, before)
