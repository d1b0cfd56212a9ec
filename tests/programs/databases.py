"""Databases: servers that the test starts and stops, each in a folder of its own."""
import hashlib
import os
import pwd
import random
import shutil
import socket
import subprocess
import tempfile
import time

from program import Program, Skip, digest, tool
from session import Failure

# ---- PostgreSQL ----


def postgres_tool(name):
    found = shutil.which(name)
    base = "/usr/lib/postgresql"
    versions = sorted(filter(str.isdigit, os.listdir(base)), key=int) if os.path.isdir(base) else []
    for version in reversed(versions):
        path = os.path.join(base, version, "bin", name)
        if os.access(path, os.X_OK):
            return path
    if found:
        return found
    raise Skip(f"{name} is not installed")


def server_user():
    """Returns PostgreSQL's user if this process is root, because the server refuses root; otherwise None."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError as error:
        raise Skip("there is no user postgres, and root may not run the server") from error


SQL = """
SET work_mem = '1GB';
SET jit = off;
SET max_parallel_workers_per_gather = 0;
CREATE TEMPORARY TABLE item AS SELECT i AS id, i * 48271 % 65521 AS owner, i * 69621 % 9973 AS price,
  'name of ' || (i * 7919 % 1000003) AS name FROM generate_series(0::bigint, 399999) i;
SELECT owner % 100, count(*), sum(price), min(name) FROM item GROUP BY 1 ORDER BY 1;
SELECT count(*), md5(string_agg(name, ',' ORDER BY name COLLATE "C", id)) FROM item;
SELECT count(*), sum(a.price * b.owner % 1009)
  FROM item a JOIN item b ON a.id = b.id * 7919 % 400000;
SELECT count(*), max(n) FROM (SELECT name, count(*) AS n, array_agg(id) FROM item GROUP BY name) x;
"""


def prepare_postgres(folder):
    server_user()
    for name in ("postgres", "initdb", "psql"):
        postgres_tool(name)


def run_postgres(session, folder):
    user = server_user()
    # The server's user may have no access to the work folder.
    with tempfile.TemporaryDirectory(prefix="tiermem-postgres-") as place:
        if user:
            shutil.chown(place, user, user)
        data = os.path.join(place, "data")
        subprocess.run([postgres_tool("initdb"), "-D", data, "-A", "trust", "-U", "test",
                        "--no-sync", "--locale=C", "-E", "UTF8"], check=True, user=user, cwd=place,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        server = session.start([postgres_tool("postgres"), "-D", data, "-k", place, "-c",
                                "listen_addresses=", "-c", "fsync=off", "-c", "shared_buffers=16MB",
                                "-c", "temp_buffers=1GB", "-c", "autovacuum=off"], user=user,
                               place=place if user else None)
        out = os.path.join(session.folder, "rows.txt")
        deadline = time.monotonic() + 60
        while not os.path.exists(os.path.join(place, ".s.PGSQL.5432")):
            if server.poll() is not None or time.monotonic() > deadline:
                raise Failure(f"the server does not start\n{session.told(server)}")
            time.sleep(0.05)
        with open(out, "wb") as rows:
            asked = subprocess.run([postgres_tool("psql"), "-h", place, "-U", "test", "-X", "-At",
                                    "-v", "ON_ERROR_STOP=1", "postgres"], input=SQL.encode(),
                                   stdout=rows, stderr=subprocess.PIPE, cwd=place)
        if asked.returncode != 0:
            raise Failure(f"psql: {asked.stderr.decode()[-500:]}\n{session.told(server)}")
        server.send_signal(2)  # SIGINT: ends after the work in progress.
        session.wait(server)
        return digest(out)


# ---- MariaDB ----

MARIA_SQL = """
CREATE DATABASE test;
USE test;
CREATE TABLE item(id INT PRIMARY KEY, owner INT, price INT, name VARCHAR(200), KEY by_name(name));
INSERT INTO item SELECT seq, seq * 48271 % 65521, seq * 69621 % 9973,
  CONCAT(REPEAT('name of ', 14), seq * 7919 % 1000003) FROM seq_0_to_199999;
UPDATE item SET price = price + 1 WHERE owner % 7 = 3;
DELETE FROM item WHERE id % 5 = 0;
SELECT owner % 100 AS part, COUNT(*), SUM(price), MIN(name) FROM item GROUP BY part ORDER BY part
  INTO OUTFILE '{out}.1';
SELECT id, name FROM item ORDER BY name LIMIT 20000 INTO OUTFILE '{out}.2';
SELECT COUNT(*), SUM(a.price * b.owner % 1009) FROM item a JOIN item b ON a.id = b.id * 7919 % 200000
  INTO OUTFILE '{out}.3';
"""


def prepare_mariadb(folder):
    tool("mariadbd")


def run_mariadb(session, folder):
    data = os.path.join(session.folder, "data")
    out = os.path.join(session.folder, "rows")
    script = os.path.join(session.folder, "script.sql")
    root = ["--user=root"] if os.geteuid() == 0 else []
    os.mkdir(data)
    # The server starts without its own tables, and reads one statement from each line.
    statements = MARIA_SQL.format(out=out).replace("\n  ", " ")
    with open(script, "w") as file:
        file.write(statements)
    session.run([tool("mariadbd"), "--no-defaults", *root, f"--datadir={data}", "--bootstrap",
                 "--innodb-buffer-pool-size=192M", "--innodb-flush-log-at-trx-commit=0",
                 "--innodb-use-native-aio=0", "--secure-file-priv=", "--skip-networking"], stdin=script)
    return digest(f"{out}.1", f"{out}.2", f"{out}.3")


# ---- memcached ----

KEYS = 40000
STRIDE = 7919


def run_memcached(session, folder):
    chance = random.Random(17)
    pool = chance.randbytes(8 << 20)
    total = hashlib.sha256()
    with tempfile.TemporaryDirectory(prefix="tiermem-memcached-") as place:
        path = os.path.join(place, "socket")
        server = session.start([tool("memcached"), "-s", path, "-m", "400", "-t", "2", "-U", "0",
                                *(["-u", "root"] if os.geteuid() == 0 else [])])
        deadline = time.monotonic() + 60
        client = socket.socket(socket.AF_UNIX)
        while True:
            try:
                client.connect(path)
                break
            except OSError as error:
                if server.poll() is not None or time.monotonic() > deadline:
                    raise Failure(f"the server does not start: {session.told(server)}") from error
                time.sleep(0.02)
        file = client.makefile("rb", 1 << 20)
        for i in range(KEYS):
            at = chance.randrange(len(pool) - 4096)
            client.sendall(b"set key:%d 0 0 4096\r\n" % i + pool[at:at + 4096] + b"\r\n")
            if (said := file.readline()) != b"STORED\r\n":
                raise Failure(f"memcached says {said!r} to set")
        for i in range(KEYS):
            client.sendall(b"get key:%d\r\n" % (i * STRIDE % KEYS))
            if not (said := file.readline()).startswith(b"VALUE"):
                raise Failure(f"memcached says {said!r} to get")
            total.update(file.read(4096))
            file.read(2), file.readline()
        file.close()
        client.close()
        server.terminate()
        session.wait(server)
    return total.hexdigest()


PROGRAMS = [
    Program("postgresql", "PostgreSQL, by a user of its own: sort, hashes, joins in a backend's memory",
            prepare_postgres, run_postgres),
    Program("mariadb", "MariaDB: InnoDB's pool of pages", prepare_mariadb, run_mariadb),
    Program("memcached", "memcached: 160 MiB of values, read back",
            lambda folder: tool("memcached"), run_memcached),
]
