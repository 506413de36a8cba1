# title: set-id bits of files that change: as the local file system and the kernel's server treat them
# seconds: 420
# ci: no

# changes MOUNT: makes each change on files of $STORE through MOUNT, which is
# $STORE itself for the local file system, and prints the mode it leaves there.
changes() {
    python3 - "$1" "$STORE" <<'END'
import errno, fcntl, os, subprocess, sys
mount, store = sys.argv[1:]
FICLONE = 0x40049409
SIZE = 1 << 20
UNSUPPORTED = (errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.ENOSYS, errno.EINVAL)
os.setgroups([])
os.umask(0)

def root():
    os.seteuid(0)
    os.setegid(0)

def user():
    os.setegid(1001)
    os.seteuid(1001)

class File:
    """A file of the user's, made beside the mount, and both its paths."""
    def __init__(self, name, mode=0o777, make=True):
        self.path, self.beside = os.path.join(mount, name), os.path.join(store, name)
        if make:
            with open(self.beside, "wb") as file:
                file.write(b"\1" * SIZE)
                os.fsync(file.fileno())
            os.chown(self.beside, 1001, 1001)
            os.chmod(self.beside, mode)

    def set(self, mode=0o6777):
        root()
        os.chmod(self.path, mode)
        user()

    def set_beside(self, mode=0o6777):
        root()
        os.chmod(self.beside, mode)
        user()

    def open(self, flags=0):
        return os.open(self.path, os.O_RDWR | flags)

def put(fd):
    os.pwrite(fd, b"changed", 0)
    os.fsync(fd)

def set_while_open(file, flags=0, mode=0o6777):
    fd = file.open(flags)
    put(fd)
    file.set(mode)
    put(fd)
    os.close(fd)

def set_again(file):
    fd = file.open()
    for _ in range(3):
        file.set()
        put(fd)
    os.close(fd)

def set_beside(file):
    fd = file.open()
    put(fd)
    file.set_beside()
    put(fd)
    os.close(fd)

def set_before_open(file):
    file.set()
    fd = file.open()
    put(fd)
    os.close(fd)

def own_new(file):
    fd = os.open(file.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o777)
    os.fchmod(fd, 0o6777)
    put(fd)
    os.close(fd)

def own_new_again(file):
    fd = os.open(file.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o777)
    put(fd)
    os.fchmod(fd, 0o6777)
    put(fd)
    os.close(fd)

def cut(file):
    fd = file.open()
    file.set()
    os.ftruncate(fd, 100)
    os.close(fd)

def cut_by_path(file):
    file.set()
    os.truncate(file.path, 100)

def emptied_at_open(file):
    file.set()
    os.close(file.open(os.O_TRUNC))

def copied_into(file):
    source, target = os.open(os.path.join(mount, "source"), os.O_RDONLY), file.open()
    file.set()
    os.copy_file_range(source, target, SIZE // 2, 0, 0)
    os.fsync(target)

def cloned_into(file):
    source, target = os.open(os.path.join(mount, "source"), os.O_RDONLY), file.open()
    file.set()
    fcntl.ioctl(target, FICLONE, source)
    os.fsync(target)

def by_fallocate(*options):
    def change(file):
        file.set()
        # The program runs as the user: the effective ids alone are not handed on.
        command = ["setpriv", "--reuid", "1001", "--regid", "1001", "--clear-groups",
                   "fallocate", *options, file.path]
        root()
        done = subprocess.run(command, capture_output=True, text=True)
        user()
        if done.returncode:
            raise OSError(errno.EOPNOTSUPP, done.stderr)
    return change

def given_to_the_group(file):
    file.set()
    os.chown(file.path, -1, 1001)

def by_root(change):
    def as_root(file):
        root()
        change(file)
    return as_root

def root_writes(file):
    os.chmod(file.path, 0o6777)
    fd = file.open()
    put(fd)
    os.chmod(file.path, 0o6777)
    put(fd)
    os.close(fd)

def root_cuts(file):
    os.chmod(file.path, 0o6777)
    os.truncate(file.path, 100)

CASES = {
    "set while open": set_while_open,
    "set while open, O_DSYNC": lambda file: set_while_open(file, os.O_DSYNC),
    "set while open, O_SYNC": lambda file: set_while_open(file, os.O_SYNC),
    "set-user-id alone": lambda file: set_while_open(file, mode=0o4755),
    "set-group-id alone": lambda file: set_while_open(file, mode=0o2775),
    "set again and again": set_again,
    "set beside the mount": set_beside,
    "set before it is opened": set_before_open,
    "own new file": own_new,
    "own new file, set between writes": own_new_again,
    "ftruncate": cut,
    "truncate": cut_by_path,
    "O_TRUNC": emptied_at_open,
    "copy_file_range": copied_into,
    "reflink": cloned_into,
    "allocate": by_fallocate("-o", "0", "-l", str(2 * SIZE)),
    "deallocate": by_fallocate("-p", "-o", "0", "-l", "65536"),
    "chgrp by the owner": given_to_the_group,
    "root writes": by_root(root_writes),
    "root truncates": by_root(root_cuts),
}

File("source")
for number, (name, change) in enumerate(CASES.items()):
    file = File(f"case-{number}", make=not name.startswith("own new"))
    user()
    try:
        change(file)
        said = None
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            root()
            print(f"{name}: {error}", file=sys.stderr)
            raise
        said = "unsupported"
    root()
    print(f"{name}\t{said or oct(os.stat(file.beside).st_mode & 0o7777)}")
    os.unlink(file.beside)
os.unlink(os.path.join(store, "source"))
END
}

# noted NAME MOUNT: what `changes` says, kept for the comparison.
noted() {
    changes "$2" >"$RESULT/$1.modes"
    cat "$RESULT/$1.modes"
}

# no_weaker NAME LOCAL KERNEL: a bit that the local file system or the kernel's
# server takes off goes here too; what root may keep stays.
no_weaker() {
    python3 - "$RESULT" "$@" <<'END'
import os, sys
folder, *names = sys.argv[1:]
def read(name):
    with open(os.path.join(folder, f"{name}.modes")) as file:
        return dict(line.rstrip("\n").split("\t") for line in file)
ours, local, kernel = (read(name) for name in names)
SET_ID, failed = 0o6000, False
for case, mode in ours.items():
    others = [other[case] for other in (local, kernel) if other.get(case, "unsupported") != "unsupported"]
    wrong = False
    if mode != "unsupported" and others:
        bits, allowed = int(mode, 8) & SET_ID, SET_ID
        for other in others:
            allowed &= int(other, 8)
        wrong = bits & ~allowed != 0 or case.startswith("root ") and bits != allowed
    failed |= wrong
    print("WRONG" if wrong else "ok", case, "here:", mode, "others:", *others)
sys.exit(failed)
END
}

# The rule itself, so that the comparison cannot pass by comparing nothing.
cleared() {
    local case
    for case in "set while open" "set again and again" "set beside the mount" "own new file"; do
        same "$case	0o777" "$(grep "^$case	" "$RESULT/$1.modes")" "mode of"
    done
    same "root writes	0o6777" "$(grep "^root writes	" "$RESULT/$1.modes")" "mode of"
}

knfsd() {
    modprobe nfsd
    mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd
    mkdir -p /var/lib/nfs/v4recovery
    pgrep -x rpcbind || rpcbind
    exportfs -o rw,no_root_squash,fsid=78,insecure "*:$STORE"
    pgrep -x rpc.mountd || rpc.mountd
    # Clients of before: none, so nobody has to be waited for.
    echo 10 >/proc/fs/nfsd/nfsv4gracetime
    rpc.nfsd 4
    eventually 20 port_open 2049
    client_mount 4.2 /mnt/k "" "$STORE"
    eventually 60 touch /mnt/k/of-knfsd
    rm -f /mnt/k/of-knfsd
}
knfsd_ends() {
    umount -f /mnt/k 2>/dev/null || true
    exportfs -ua
    rpc.nfsd 0
    pkill -x rpc.mountd || true
}

for kind in xfs zfs; do
    [ $kind != zfs ] || [ -d /sys/module/zfs ] || continue
    store_make $kind
    step "$kind: the local file system" noted "$kind-local" "$STORE"
    step "$kind: the kernel's server serves" knfsd
    step "$kind: the kernel's server" noted "$kind-kernel" /mnt/k
    step "$kind: the kernel's server ends" knfsd_ends
    step "$kind: the gateway serves" gateway_start || continue
    for version in 4.2 4.0 3; do
        step "$kind: v$version mounts" client_mount $version /mnt/v || continue
        step "$kind: v$version" noted "$kind-$version" /mnt/v
        step "$kind: v$version takes off what the others do" \
            no_weaker "$kind-$version" "$kind-local" "$kind-kernel"
        step "$kind: v$version clears after each change" cleared "$kind-$version"
        umount /mnt/v
    done
    gateway_stop
    umount "$STORE"
    rm -rf "$STATE_DIR"
done
