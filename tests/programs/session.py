"""Session: one run of a program in one manner, and its measurements.

start() or run() starts a program, also several times. Every started process is in the session's control
group (if one can be made), and under `tiermem run` in the manner "tiermem". A thread samples the anonymous
memory of all of them together, and ends them when the time is over. The work of the program's driver in
this Python process counts in neither the group nor the samples.
"""
import ctypes
import json
import os
import pwd
import resource
import signal
import subprocess
import threading
import time

from limits import Group

SAMPLE_S = 0.02
LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1
REFUSED = 3  # The exit status of `tiermem run` if it cannot run the program.


def processor_seconds():
    """The time of all processes that this one has waited for, and of those that these have waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Failure(Exception):
    """The program gave a wrong result."""


class TooSlow(Exception):
    """The program did not end within the time limit."""


class Session:
    def __init__(self, manner, folder, limit_s, tiermem=None, dram=None, nvme=None, cgroup=None):
        self.manner = manner      # plain, tiermem, swap, zswap
        self.folder = folder      # The folder for the program's output.
        self.limit_s = limit_s
        self.tiermem = tiermem    # The program `tiermem`.
        self.dram = dram          # The budget in bytes, or None.
        self.nvme = nvme          # The value of --nvme.
        # The control group's limit in bytes. If None, swap and zswap use the budget, and the others
        # no limit.
        self.cgroup = cgroup or (dram if manner in ("swap", "zswap") else None)
        self.peak = 0             # Anonymous bytes of all processes together.
        self.seconds = 0.0
        self.processor_s = 0.0    # User and system time, including tiermem's threads.
        self.reports = []         # The reports of `tiermem run --json`, one for each start.
        self._processes = []
        self._over = threading.Event()
        self._too_slow = False

    def __enter__(self):
        self._group = Group.make(self.cgroup)
        self._used = processor_seconds()
        self._begin = time.monotonic()
        self._sampler = threading.Thread(target=self._sample)
        self._sampler.start()
        return self

    def __exit__(self, kind, error, trace):
        self.seconds = time.monotonic() - self._begin
        self._over.set()
        self._sampler.join()
        self._end_all()
        self.processor_s = processor_seconds() - self._used
        if self._group:
            self._group.remove()
        for process in self._processes:
            self._collect(process)
        if self._too_slow and kind is not TooSlow and error is not None:
            raise TooSlow() from error
        return False

    def _collect(self, process):
        """Keeps the report of a process that has ended."""
        if process.report and os.path.exists(process.report):
            with open(process.report) as file:
                self.reports.append(json.load(file))
            process.report = None

    def not_tiered(self):
        """The reasons why processes were not tiered, as `tiermem run` reports them at their end."""
        return [entry for report in self.reports for entry in report["not_tiered"]]

    def total(self, counter):
        """The sum of a counter of `tiermem run --json` over all starts."""
        return sum(report["total"][counter] for report in self.reports)

    def _in_child(self, user):
        if self._group:
            self._group.enter()
        if user:
            entry = pwd.getpwnam(user)
            os.initgroups(user, entry.pw_gid)
            os.setgid(entry.pw_gid)
            os.setuid(entry.pw_uid)
        # The program also ends if this process is killed.
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)

    def start(self, command, environment=None, stdout=None, stdin=None, user=None, place=None):
        """Starts a program; `stdin` and `stdout` name files. Its stderr goes to a file in the folder. With
        `user` it and tiermem run as that user, and `place` is a folder that this user owns."""
        number = len(self._processes)
        report = None
        if self.manner == "tiermem":
            report = os.path.join(place or self.folder, f"report-{number}.json")
            if os.path.exists(report):
                os.unlink(report)
            nvme = f"{place}:{self.nvme.rpartition(':')[2]}" if place else self.nvme
            command = [self.tiermem, "run", "--dram", str(self.dram), "--nvme", nvme,
                       "--json", report, "--log", "warn", "--", *command]
        errors = os.path.join(self.folder, f"stderr-{number}.txt")
        with open(stdin or os.devnull, "rb") as in_, open(stdout or os.devnull, "wb") as out, \
                open(errors, "wb") as err:
            process = subprocess.Popen(
                command, stdin=in_, stdout=out, stderr=err, cwd=place or self.folder,
                env={**os.environ, "LC_ALL": "C", **(environment or {})}, start_new_session=True,
                preexec_fn=lambda: self._in_child(user))
        process.errors = errors
        process.report = report
        self._processes.append(process)
        return process

    def wait(self, process, status=0):
        """Waits until the process has ended. Its exit status must be `status`."""
        process.wait()
        if self._too_slow:
            raise TooSlow()
        self._collect(process)
        if process.returncode != status:
            raise Failure(f"exit status {process.returncode} instead of {status}\n"
                          f"{self.told(process)}".strip())

    def told(self, process=None):
        """The end of the stderr of a process, by default the last one."""
        process = process or self._processes[-1]
        with open(process.errors, errors="replace") as file:
            return file.read()[-2000:]

    def refused(self):
        """The message of `tiermem run` if it refused to start the last process; otherwise None."""
        process = self._processes[-1]
        return self.told(process) if process.returncode == REFUSED else None

    def run(self, command, environment=None, stdout=None, stdin=None):
        self.wait(self.start(command, environment, stdout, stdin))

    def _sample(self):
        while not self._over.wait(SAMPLE_S):
            self.peak = max(self.peak, self._anonymous())
            if time.monotonic() - self._begin > self.limit_s:
                self._too_slow = True
                self._end_all()
                return

    def _anonymous(self):
        if self._group:
            return self._group.anonymous()
        # Without a group, memory shared after a fork and not written is counted in parent and
        # child.
        sessions = {process.pid for process in self._processes}
        total = 0
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.getsid(int(pid)) in sessions:
                    with open(f"/proc/{pid}/status") as file:
                        total += sum(int(line.split()[1]) * 1024 for line in file
                                     if line.startswith("RssAnon"))
            except OSError:
                pass  # The process has ended.
        return total

    def _end_all(self):
        # First asks the processes to end: `tiermem run` forwards the signal, and then prints its
        # counts.
        for process in self._processes:
            if process.poll() is None:
                process.terminate()
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and any(p.poll() is None for p in self._processes):
            time.sleep(0.05)
        for process in self._processes:
            if process.poll() is None or self._group is None:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except OSError:
                    pass
        if self._group:
            self._group.kill()
        for process in self._processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                pass
