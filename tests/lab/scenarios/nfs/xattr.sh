# title: user extended attributes over v4.2
# seconds: 120
# ci: no

store_make "$(best_store)"
need "the gateway serves" gateway_start
need "v4.2 mounts" client_mount 4.2 /mnt/v

simple() {
    cd /mnt/v
    echo x >file
    setfattr -n user.color -v blue file
    same blue "$(getfattr --only-values -n user.color file)" value
    setfattr -n user.color -v green file
    same green "$(getfattr --only-values -n user.color file)" "value replaced"
    setfattr -n user.empty file
    same "user.color user.empty" "$(getfattr file | grep -o 'user\.[a-z]*' | sort | xargs)" names
    setfattr -x user.empty file
    refused "No such attribute" getfattr -n user.empty file
    refused "No such attribute" setfattr -x user.empty file
    same green "$(getfattr --only-values -n user.color "$STORE/file")" "value at the store"
    mkdir dir
    setfattr -n user.of.dir -v d dir
    same d "$(getfattr --only-values -n user.of.dir dir)" "of a directory"
}
flags() {
    python3 - /mnt/v/file <<'END'
import errno, os, sys
path = sys.argv[1]
os.setxattr(path, "user.once", b"1", os.XATTR_CREATE)
try:
    os.setxattr(path, "user.once", b"2", os.XATTR_CREATE)
    raise SystemExit("created twice")
except OSError as error:
    assert error.errno == errno.EEXIST, error
try:
    os.setxattr(path, "user.never", b"2", os.XATTR_REPLACE)
    raise SystemExit("replaced what is not there")
except OSError as error:
    assert error.errno == errno.ENODATA, error
os.setxattr(path, "user.binary", bytes(range(256)) * 64)
assert os.getxattr(path, "user.binary") == bytes(range(256)) * 64
for n in range(100):
    os.setxattr(path, f"user.many{n:03}", str(n).encode())
names = [name for name in os.listxattr(path) if name.startswith("user.many")]
assert len(names) == 100, len(names)
END
}
not_ours() { cd /mnt/v && refused "not supported" setfattr -n trusted.x -v 1 file; }
users() {
    cd /mnt/v
    chmod 644 file
    refused "denied" as 1001 setfattr -n user.color -v red file
    same green "$(as 1001 getfattr --only-values -n user.color file)" "readable by others"
    chmod 600 file
    drop_caches
    refused "denied" as 1001 getfattr --only-values -n user.color file
}
step "set, get, list, remove" simple
step "create and replace, binary, a hundred" flags
step "other name spaces are refused" not_ours
step "permissions of other users" users
