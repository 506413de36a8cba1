"""A gateway to test against, and a proxy that treats its clients badly. ZGATE
names the gateway's binary."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import threading
import time

import numpy

CONFIG = """
[server]
listen = ["127.0.0.1:{port}"]
state_dir = "{dir}/state"
lease_seconds = 5
grace_seconds = 5
admin_socket = "{dir}/admin.sock"
metrics_listen = "127.0.0.1:{metrics}"
[[export]]
path = "{dir}/models"
pseudo = "/models"
clients = [{{ match = "127.0.0.1", access = "ro", squash = "none" }}]
"""

RDMA = """
[rdma]
listen = ["127.0.0.1:{port}"]
fabric = "{fabric}"
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Gateway:
    """A gateway that serves a scratch directory."""

    def __init__(self, rdma=None):
        self.dir = tempfile.TemporaryDirectory()
        self.models = pathlib.Path(self.dir.name, "models")
        self.models.mkdir()
        self.port, self.rdma_port, self.metrics_port = free_port(), free_port(), free_port()
        self.config = pathlib.Path(self.dir.name, "zgate.toml")
        text = CONFIG.format(port=self.port, metrics=self.metrics_port, dir=self.dir.name)
        if rdma is not None:
            text += RDMA.format(port=self.rdma_port, fabric=rdma)
        self.config.write_text(text)
        self.start()

    def start(self):
        command = [os.environ["ZGATE"], "serve", "--config", str(self.config)]
        with open(pathlib.Path(self.dir.name, "zgate.log"), "ab") as log:
            self.process = subprocess.Popen(command, stderr=log)
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def url(self, path):
        return f"nfs://127.0.0.1:{self.port}/models/{path}"

    def clients(self):
        """Names of the clients it knows."""
        socket_path = str(pathlib.Path(self.dir.name, "admin.sock"))
        command = [os.environ["ZGATE"], "clients", "--json", "--socket", socket_path]
        said = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        return sorted(client["name"] for client in said)

    def close(self):
        self.kill()
        self.dir.cleanup()


def arrays():
    random = numpy.random.default_rng(7)
    return {
        "a.weight": random.standard_normal((256, 384), dtype=numpy.float32),
        "b.weight": random.standard_normal((64, 1024)).astype(numpy.float16),
        "c.ids": numpy.arange(1000, dtype=numpy.int64),
        "d.flag": numpy.array([True, False, True]),
        "e.scalar": numpy.array(3.5, dtype=numpy.float64),
        "f.empty": numpy.empty((0, 7), dtype=numpy.float32),
    }


class Proxy:
    """Passes bytes on between clients and a server, as long as it likes to."""

    def __init__(self, port):
        self.target = ("127.0.0.1", port)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        #: A connection is cut after so many bytes of answers.
        self.cut_after_bytes = None
        #: All of them, and no new ones are taken, after so many.
        self.close_after_bytes = None
        #: Answers wait until this is set.
        self.flowing = threading.Event()
        self.flowing.set()
        self.cuts = 0
        self.passed_bytes = 0
        self.lock = threading.Lock()
        self.open = set()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self.target)
            except OSError:
                client.close()
                continue
            pair = (client, server)
            with self.lock:
                self.open.add(pair)
            for ends in ((client, server, False), (server, client, True)):
                threading.Thread(target=self.carry, args=(pair, *ends), daemon=True).start()

    def carry(self, pair, source, sink, answers):
        passed = 0
        try:
            while data := source.recv(1 << 16):
                if answers:
                    self.flowing.wait()
                    passed += len(data)
                    self.passed_bytes += len(data)
                    if self.close_after_bytes is not None and self.passed_bytes > self.close_after_bytes:
                        self.close()
                        return
                    if self.cut_after_bytes is not None and passed > self.cut_after_bytes:
                        self.cuts += 1
                        break
                sink.sendall(data)
        except OSError:
            pass
        self.drop(pair)

    def drop(self, pair):
        with self.lock:
            self.open.discard(pair)
        for end in pair:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()

    def close(self):
        """Cuts everything and takes no more."""
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()
        for pair in list(self.open):
            self.drop(pair)
        self.flowing.set()

    def url(self, path, query=""):
        return f"nfs://127.0.0.1:{self.port}/models/{path}{query}"
