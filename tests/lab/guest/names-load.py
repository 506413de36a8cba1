"""Creates, asks for and removes files in a directory, without end.

names-load.py DIRECTORY COUNTER: the file COUNTER has the number of operations so far.
"""

import os
import sys


def main():
    directory, counter = sys.argv[1:]
    out = os.open(counter, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.pwrite(out, b"%020d" % 0, 0)
    done = 0
    while True:
        name = "%s/n%d" % (directory, done)
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
        os.stat(name)
        os.unlink(name)
        done += 3
        os.pwrite(out, b"%020d" % done, 0)


main()
