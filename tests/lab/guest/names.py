"""Names that are made, moved and removed, one after the other or by several
processes at once, each in a directory of its own.

names.py DIRECTORY COUNT PROCESSES: prints "create rename remove", each a second."""

import os
import sys
import time


def work(directory, kind, count):
    for number in range(count):
        path = f"{directory}/file{number}"
        if kind == "create":
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
        elif kind == "rename":
            os.rename(path, path + "-moved")
        else:
            os.unlink(path + "-moved")


def main():
    root, count, processes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    directories = [f"{root}/names{number}" for number in range(processes)]
    for directory in directories:
        os.mkdir(directory)
    rates = []
    for kind in ("create", "rename", "remove"):
        began = time.monotonic()
        children = []
        for directory in directories:
            child = os.fork()
            if child == 0:
                work(directory, kind, count)
                os._exit(0)
            children.append(child)
        for child in children:
            if os.waitpid(child, 0)[1] != 0:
                raise SystemExit(f"{kind} failed")
        rates.append(count * processes / (time.monotonic() - began))
    for directory in directories:
        os.rmdir(directory)
    print(" ".join(f"{rate:.1f}" for rate in rates))


main()
