"""Loads one model to host or GPU memory by several loaders, by turns, and prints
their medians: this package from a gateway over TCP on the loopback interface, the
others from the files that the gateway serves (which favours them: no network).

    ZGATE=target/release/zgate python3 compare.py --device cuda:0 --ranks 8

Each load is a process of its own. Its time begins after the imports and, on a
GPU, after the first use of the device. The files are in the page cache.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests"))
from gateway import Gateway  # noqa: E402

#: Loaders and the packages that they need.
LOADERS = {
    "zgate": ("zgate", "torch"),
    "safetensors": ("safetensors", "torch"),
    "fastsafetensors": ("fastsafetensors", "torch"),
    "runai-model-streamer": ("runai_model_streamer", "torch"),
}

#: Columns of a tensor, of two bytes each.
COLUMNS = 4096
#: Rows of the tensors of a layer: attention, projections, a norm.
ROWS = (4096, 1024, 1024, 4096, 14336, 14336, 1)


def write_model(folder, files, size_bytes):
    """Writes sharded bfloat16 tensors of the shapes of a transformer's layers."""
    noise = os.urandom(32 << 20)
    layer = sum(ROWS) * COLUMNS * 2
    layers = max(1, size_bytes // files // layer)
    for number in range(files):
        head, at = {}, 0
        for index in range(layers * len(ROWS)):
            rows = ROWS[index % len(ROWS)]
            end = at + rows * COLUMNS * 2
            name = f"model.layers.{number * layers + index // len(ROWS)}.{index % len(ROWS)}"
            head[name] = {"dtype": "BF16", "shape": [rows, COLUMNS], "data_offsets": [at, end]}
            at = end
        text = json.dumps(head).encode()
        text += b" " * (-len(text) % 8)
        with open(folder / f"model-{number:05}.safetensors", "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            while at > 0:
                file.write(noise[: min(at, len(noise))])
                at -= len(noise)


class Server(Gateway):
    """A gateway, and what it has spent."""

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def sent_bytes(self):
        address = f"http://127.0.0.1:{self.metrics_port}/metrics"
        with urllib.request.urlopen(address, timeout=10) as reply:
            lines = reply.read().decode().splitlines()
        counts = [line.split()[-1] for line in lines if line.startswith("zgate_sent_bytes_total")]
        return sum(float(count) for count in counts)


class Watch:
    """Samples the most that is used of the device's memory, in bytes."""

    def __init__(self, device):
        self.device, self.peak, self.ended = device, 0, threading.Event()
        self.before = self.used()
        self.thread = threading.Thread(target=self.sample)
        self.thread.start()

    def used(self):
        if self.device == "cpu":
            return 0
        import torch

        free, total = torch.cuda.mem_get_info(self.device)
        return total - free

    def sample(self):
        while not self.ended.wait(0.01):
            self.peak = max(self.peak, self.used())

    def stop(self):
        self.ended.set()
        self.thread.join()
        self.peak = max(self.peak, self.used())
        return max(0, self.peak - self.before)


def load(loader, source, device):
    """Loads the model, and returns its tensors. ``source`` is an address or files."""
    if loader == "zgate":
        import zgate

        return zgate.load_file(source[0], device, framework="pt")
    if loader == "safetensors":
        from safetensors.torch import load_file

        tensors = {k: v for file in source for k, v in load_file(file, device=device).items()}
        if device != "cpu":
            return tensors
        # These are the mapped files: a copy is read, and the process's own, as with the others.
        return {name: tensor.clone() for name, tensor in tensors.items()}
    if loader == "fastsafetensors":
        from fastsafetensors import SafeTensorsFileLoader

        files = SafeTensorsFileLoader(None, device, nogds=True)
        files.add_filenames({0: source})
        buffers = files.copy_files_to_device()
        tensors = {name: buffers.get_tensor(name) for name in files.get_keys()}
        buffers.close()
        files.close()
        return tensors
    from runai_model_streamer import SafetensorsStreamer

    with SafetensorsStreamer() as streamer:
        streamer.stream_files(source, device=device)
        return {k: v.to(device) for k, v in streamer.get_tensors()}


def child(loader, device, digest, source):
    """One load; prints its figures as JSON."""
    import torch

    importlib.import_module(LOADERS[loader][0])
    if device != "cpu":
        torch.zeros(1, device=device)
        torch.cuda.synchronize(device)
    watch = Watch(device)
    cpu, begun = time.process_time(), time.perf_counter()
    tensors = load(loader, source, device)
    if device != "cpu":
        torch.cuda.synchronize(device)
    seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    gpu_bytes = watch.stop()
    figures = {
        "seconds": seconds,
        "cpu_seconds": cpu,
        "peak_host_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "peak_device_bytes": gpu_bytes,
        "tensors": len(tensors),
        "bytes": sum(t.nbytes for t in tensors.values()),
    }
    if digest:
        import hashlib

        whole = hashlib.sha256()
        for name in sorted(tensors):
            whole.update(name.encode() + tensors[name].cpu().view(torch.uint8).numpy().tobytes())
        figures["sha256"] = whole.hexdigest()
    print(json.dumps(figures))


def run(loader, device, source, server, digest=False):
    """Starts a process for one load, and returns its figures."""
    before = server.cpu_seconds()
    command = [sys.executable, __file__, "--child", loader, "--device", device, *source]
    if digest:
        command.insert(2, "--digest")
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if ended.returncode != 0:
        raise SystemExit(f"{loader}: {ended.stderr[-2000:]}")
    figures = json.loads(ended.stdout.splitlines()[-1])
    figures["server_cpu_seconds"] = server.cpu_seconds() - before
    return figures


def ranks(count, device, address, server, model_bytes):
    """Loads the model once in each of several processes that share the reads."""
    before, cpu, begun = server.sent_bytes(), server.cpu_seconds(), time.perf_counter()
    command = [os.environ["ZGATE"], "load", "--json", "--device", device, address]
    command += ["--ranks", str(count), "--group", f"compare-{os.getpid()}"]
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(count)
    ]
    said = []
    for process in started:
        out, error = process.communicate(timeout=300)
        if process.returncode != 0:
            raise SystemExit(f"a rank: {error[-2000:]}")
        said.append(json.loads(out)[0])
    return {
        "ranks": count,
        "device": device,
        "seconds_with_start": time.perf_counter() - begun,
        "longest_load_seconds": max(rank["seconds"] for rank in said),
        "server_cpu_seconds": server.cpu_seconds() - cpu,
        "sent_bytes_per_model_byte": (server.sent_bytes() - before) / model_bytes,
    }


def versions():
    names = ["torch", *(packages[0].replace("_", "-") for packages in LOADERS.values())]
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def machine(device):
    text = f"{os.cpu_count()} processors, Linux {platform.release()}"
    if device != "cpu":
        import torch

        text += f", {torch.cuda.get_device_name(device)}"
    return text


def table(report):
    lines = ["loader                  device   GB/s   of zgate  CPU s/GB  server   host MiB  device MiB"]
    for device, rows in report["loads"].items():
        ours = rows["zgate"]["seconds"]
        for loader, row in rows.items():
            gb = row["bytes"] / 1e9
            lines.append(
                f"{loader:22}  {device:7} {gb / row['seconds']:5.2f}  {ours / row['seconds']:9.2f}"
                f"  {row['cpu_seconds'] / gb:8.3f}  {row['server_cpu_seconds'] / gb:6.3f}"
                f"  {row['peak_host_bytes'] / 2**20:9.0f}  {row['peak_device_bytes'] / 2**20:10.0f}"
            )
    for row in report["ranks"]:
        lines.append(
            f"{row['ranks']} ranks to {row['device']}: {row['longest_load_seconds']:.2f} s, "
            f"{row['sent_bytes_per_model_byte']:.4f} bytes sent a byte of the model"
        )
    return "\n".join(lines)


def compare(args):
    """Runs everything, and returns the report."""
    present = {
        name: packages
        for name, packages in LOADERS.items()
        if all(importlib.util.find_spec(package) for package in packages)
    }
    for name in LOADERS.keys() - present.keys():
        print(f"{name} is not installed: left out", file=sys.stderr)
    tempfile.tempdir = args.dir
    server = Server()
    try:
        folder = server.models / "m"
        folder.mkdir()
        write_model(folder, args.files, int(args.size_gib * 2**30))
        files = sorted(str(file) for file in folder.iterdir())
        address = server.url("m?rdma=off")
        report = {"machine": machine(args.device[-1]), "versions": versions(), "loads": {}}
        for device in args.device:
            report["loads"][device] = turns(present, device, address, files, server, args.rounds)
        size = report["loads"][args.device[0]]["zgate"]["bytes"]
        report["model_bytes"], report["rounds"], report["ranks"] = size, args.rounds, []
        for device in args.device if args.ranks > 1 else []:
            report["ranks"].append(ranks(args.ranks, device, address, server, size))
        return report
    finally:
        server.close()


def turns(present, device, address, files, server, rounds):
    """Loads by everybody in each round; the order changes from round to round."""
    source = {name: [address] if name == "zgate" else files for name in present}
    digests = {name: run(name, device, source[name], server, True)["sha256"] for name in present}
    if len(set(digests.values())) != 1:
        raise SystemExit(f"the loaders do not have the same bytes: {digests}")
    figures = {name: [] for name in present}
    for number in range(rounds):
        print(f"{device}: round {number + 1} of {rounds}", file=sys.stderr)
        names = list(present)
        first = number % len(names)
        for name in names[first:] + names[:first]:
            figures[name].append(run(name, device, source[name], server))
    rows = {}
    for name, loads in figures.items():
        rows[name] = {key: statistics.median(load[key] for load in loads) for key in loads[0]}
        rows[name]["seconds_of_rounds"] = [load["seconds"] for load in loads]
    return rows


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    arguments.add_argument("--device", action="append", help="cpu or cuda:N; may be repeated")
    arguments.add_argument("--size-gib", type=float, default=4)
    arguments.add_argument("--files", type=int, default=4)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--ranks", type=int, default=1, help="processes that share one load")
    arguments.add_argument("--dir", help="place of the model's files, instead of $TMPDIR")
    arguments.add_argument("--out", type=pathlib.Path, help="file for the report as JSON")
    arguments.add_argument("--child", help=argparse.SUPPRESS)
    arguments.add_argument("--digest", action="store_true", help=argparse.SUPPRESS)
    arguments.add_argument("source", nargs="*", help=argparse.SUPPRESS)
    args = arguments.parse_args()
    args.device = args.device or ["cpu"]
    if args.child:
        child(args.child, args.device[0], args.digest, args.source)
        return
    report = compare(args)
    if args.out:
        args.out.write_text(json.dumps(report, indent=2) + "\n")
    print(table(report))


if __name__ == "__main__":
    main()
