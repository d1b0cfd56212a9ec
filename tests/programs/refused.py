"""Refused: programs that `tiermem run` refuses with a message before it starts them."""
import os
import subprocess

from program import Program, Skip, digest, once, tool


def make_go(folder):
    def make(path):
        source = os.path.join(folder, "sum.go")
        with open(source, "w") as file:
            file.write('package main\n\nimport "fmt"\n\nfunc main() {\n\tfmt.Println(6 * 7)\n}\n')
        done = subprocess.run([tool("go"), "build", "-o", path, source], cwd=folder,
                              env={**os.environ, "GOCACHE": os.path.join(folder, "cache"),
                                   "GOFLAGS": "-mod=mod", "GO111MODULE": "off", "HOME": folder},
                              stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            raise Skip(f"go build fails: {done.stderr[-500:]}")
    return once(folder, "sum", make)


def output(*command):
    def run(session, folder):
        path = os.path.join(session.folder, "output.txt")
        session.run([word.format(folder=folder) for word in command], stdout=path)
        return digest(path)
    return run


def tool_of_go(session, folder):
    return output(os.path.realpath(tool("go")), "version")(session, folder)


PROGRAMS = [
    Program("go", "the go tool, written in Go", lambda folder: tool("go"), tool_of_go,
            refusal="is a Go program"),
    Program("go-program", "a program that go built", make_go, output("{folder}/sum"),
            refusal="is a Go program"),
    Program("busybox", "BusyBox (static)", lambda folder: tool("busybox"),
            output("busybox", "sha256sum", "/etc/passwd"), refusal="is linked statically"),
]
