"""Redis: 1 GiB of values is written over its protocol, read back, saved by a forked child, and read again
from a server that started with the dump. The digest covers all values twice, in a scattered order.
"""
import hashlib
import os
import random
import socket
import tempfile
import time

from session import Failure

KEYS = 262144
BATCH = 512
STRIDE = 100003  # Has no common divisor with KEYS, so every key is visited once.


class Client:
    """One connection; commands are sent in batches and their answers read in order."""

    def __init__(self, path, process):
        deadline = time.monotonic() + 120
        while True:
            self.socket = socket.socket(socket.AF_UNIX)
            try:
                self.socket.connect(path)
                break
            except OSError:
                self.socket.close()
                if process.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
        self.file = self.socket.makefile("rb", 1 << 20)

    def send(self, commands):
        parts = []
        for words in commands:
            parts.append(b"*%d\r\n" % len(words))
            for word in words:
                parts += (b"$%d\r\n" % len(word), word, b"\r\n")
        self.socket.sendall(b"".join(parts))

    def answer(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the connection ended")
        if line[:1] == b"$" and line != b"$-1\r\n":
            length = int(line[1:])
            body = self.file.read(length + 2)
            if len(body) != length + 2:
                raise ConnectionError("the connection ended")
            return body[:-2]
        return line[:-2]

    def ask(self, *words):
        self.send([[word.encode() for word in words]])
        return self.answer()

    def load(self):
        """Waits for the server, which answers LOADING while it reads the dump."""
        while (said := self.ask("PING")) != b"+PONG":
            if not said.startswith(b"-LOADING"):
                raise Failure(f"redis says {said!r}")
            time.sleep(0.05)

    def close(self):
        self.file.close()
        self.socket.close()


def values():
    """Returns values of 4 KiB, cut from a pool at random places."""
    chance = random.Random(3)
    pool = chance.randbytes(32 << 20)
    for _ in range(KEYS):
        at = chance.randrange(len(pool) - 4096)
        yield pool[at:at + 4096]


def fill(client):
    made = values()
    for first in range(0, KEYS, BATCH):
        client.send([[b"SET", b"key:%d" % i, next(made)] for i in range(first, first + BATCH)])
        for _ in range(BATCH):
            if (said := client.answer()) != b"+OK":
                raise Failure(f"redis says {said!r} to SET")


def read_back(client, total):
    for first in range(0, KEYS, BATCH):
        client.send([[b"GET", b"key:%d" % (i * STRIDE % KEYS)]
                     for i in range(first, first + BATCH)])
        for _ in range(BATCH):
            total.update(client.answer())


def save(client):
    if not (said := client.ask("BGSAVE")).startswith(b"+Background"):
        raise Failure(f"redis says {said!r} to BGSAVE")
    while True:
        lines = client.ask("INFO", "persistence").split(b"\r\n")
        state = dict(line.split(b":", 1) for line in lines if b":" in line)
        if state[b"rdb_bgsave_in_progress"] == b"0":
            break
        time.sleep(0.05)
    if state[b"rdb_last_bgsave_status"] != b"ok":
        raise Failure("BGSAVE: the forked child failed")


def run(session, program):
    total = hashlib.sha256()
    # The path of a socket must be short.
    with tempfile.TemporaryDirectory(prefix="tiermem-redis-") as place:
        path = os.path.join(place, "socket")
        for start in range(2):
            server = session.start(
                [program, "--port", "0", "--unixsocket", path, "--dir", session.folder,
                 "--save", "", "--appendonly", "no", "--rdbcompression", "no"],
                stdout=os.path.join(session.folder, f"redis-{start}.log"))
            client = Client(path, server)
            client.load()
            if start == 0:
                fill(client)
            read_back(client, total)
            if start == 0:
                save(client)
            client.send([[b"SHUTDOWN", b"NOSAVE"]])
            session.wait(server)
            client.close()
    return total.hexdigest()
