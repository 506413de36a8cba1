"""An old write is held by its disk; a newer one of the same blocks is
acknowledged; then the disk goes on. What is read afterwards is the newer one.

held.py CASE BASE: BASE is a block number, 16 KiB before a hole of 16 KiB. The
old write begins inside the first 16 KiB, which have to be read for it, and
reads stand still; the newer one lies in the hole, which needs no read.

  relogin        the session of the old write dies; its host logs in again
  reset-dead     it dies; another host resets the unit
  preempt-dead   it dies; another host preempts and aborts its registration
  reset-live     it lives; another host resets the unit
  preempt-live   it lives; another host preempts and aborts its registration
"""

import os
import struct
import subprocess
import sys
import threading
import time

from initiator import Failed, Refused, Session, login_until, read16, reserve_out, synchronize16, write16

TARGET = os.environ["TARGET"]
OLD_HOST, NEW_HOST = "iqn.2026-11.org.example:old", "iqn.2026-11.org.example:new"
OLD_KEY, NEW_KEY = 0xA, 0xB
HALF_BLOCKS = 32  # 16 KiB
OLD, NEW = b"O", b"N"
# How long the newer write may take while the old one is held. A unit that
# waits for the old one does not answer; the longer one is beyond any wait that
# gives up.
DEAD_SECONDS, LIVE_SECONDS = 12, 45
# From here on nothing is held any more.
AFTER_SECONDS = 60


def words(line):
    subprocess.run(["bash", "-c", ". /lab/guest/lib.sh; . /lab/guest/slow.sh; set -eu; " + line], check=True)


def register(session, action, key, other):
    session.run(reserve_out(action), struct.pack(">QQ", key, other).ljust(24, b"\0"))


def until(seconds, what):
    """Tries again while the unit says that it could not."""
    end = time.monotonic() + seconds
    while True:
        try:
            return what()
        except (Failed, Refused, OSError) as error:
            if time.monotonic() > end:
                raise
            print("again:", error, flush=True)
            time.sleep(1)


class Case:
    def __init__(self, name, base):
        self.name, self.base, self.hole = name, base, base + HALF_BLOCKS
        self.error, self.done_at = None, None
        self.limit = DEAD_SECONDS + LIVE_SECONDS + AFTER_SECONDS

    def prepare(self):
        self.old = Session(TARGET, OLD_HOST)
        self.new = Session(TARGET, NEW_HOST, seconds=self.limit) if self.name != "relogin" else None
        if self.name.startswith("preempt"):
            register(self.old, 0, 0, OLD_KEY)
            register(self.old, 1, OLD_KEY, 0)
            register(self.new, 0, 0, NEW_KEY)
        # The units' attentions are taken before anything is held; ZFS has its log
        # and knows where space is.
        for session in filter(None, (self.old, self.new)):
            session.run(bytes(6))
            warm = bytes(HALF_BLOCKS * 512)
            session.run(write16(self.base + 16 * HALF_BLOCKS, HALF_BLOCKS, fua=True), warm)
            session.run(synchronize16())

    def fence(self):
        if self.name == "relogin":
            self.new = login_until(TARGET, OLD_HOST, self.limit)
        elif self.name.startswith("reset"):
            until(self.limit, self.reset)
        else:
            until(self.limit, lambda: register(self.new, 5, NEW_KEY, OLD_KEY))

    def reset(self):
        response = self.new.reset_unit()
        if response != 0:
            raise Failed(f"LOGICAL UNIT RESET: response {response}")

    def newer(self):
        try:
            began = time.monotonic()
            self.fence()
            print(f"fenced after {time.monotonic() - began:.1f} s", flush=True)
            data = NEW * (HALF_BLOCKS * 512)
            until(self.limit, lambda: self.new.run(write16(self.hole, HALF_BLOCKS, fua=True), data))
            self.new.run(synchronize16())
            self.done_at = time.monotonic() - began
        except Exception as error:  # it is raised where somebody waits for it
            self.error = error

    def run(self):
        self.prepare()
        words("device_slow slow 600000 0")
        first = self.base + 1
        blocks = 2 * HALF_BLOCKS - 1
        tag = self.old.start(write16(first, blocks), OLD * (blocks * 512))
        self.old.socket.settimeout(3)
        try:
            self.old.answer(tag)
            raise SystemExit("the old write was not held: nothing is tried here")
        except TimeoutError:
            pass
        if not self.name.endswith("-live"):
            self.old.drop()
            time.sleep(1)
        newer = threading.Thread(target=self.newer)
        newer.start()
        newer.join(LIVE_SECONDS if self.name.endswith("-live") else DEAD_SECONDS)
        print("the newer write was acknowledged while the old one was held:", not newer.is_alive(), flush=True)
        words("device_quick slow")
        newer.join(AFTER_SECONDS)
        if self.error:
            raise self.error
        if newer.is_alive():
            raise SystemExit("the newer write has no answer")
        print(f"newer write: {self.done_at:.1f} s", flush=True)
        # The old one has had its turn by now, if it ever gets one.
        time.sleep(4)
        found = self.new.run(read16(self.hole, HALF_BLOCKS), read=HALF_BLOCKS * 512)
        if found != NEW * len(found):
            raise SystemExit(f"{found.count(OLD)} bytes of the old write lie over the newer one")


def main():
    case = Case(sys.argv[1], int(sys.argv[2]))
    try:
        case.run()
    finally:
        words("device_quick slow")
        if case.name.startswith("preempt"):
            # The next case finds no reservation.
            register(case.new, 3, NEW_KEY, 0)


main()
