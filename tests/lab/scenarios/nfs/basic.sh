# title: every version of NFS mounts; files are made, renamed, linked and removed
# seconds: 400

store_make "$(best_store)"
need "the gateway serves" gateway_start

make_things() {
    cd "$1"
    echo hello >file
    same hello "$(cat file)"
    echo more >>file
    same 11 "$(stat -c %s file)" "size after append"
    mkdir -p a/b/c
    mv file a/b/c/moved
    same hello "$(head -n 1 a/b/c/moved)"
    ln a/b/c/moved linked
    same 2 "$(stat -c %h linked)" "link count"
    same "$(stat -c %i linked)" "$(stat -c %i a/b/c/moved)" "inode of the link"
    ln -s a/b/c/moved pointer
    same a/b/c/moved "$(readlink pointer)"
    same hello "$(head -n 1 pointer)"
    echo other >target
    mv -f target linked
    same other "$(cat linked)" "renamed over"
    same 1 "$(stat -c %h a/b/c/moved)" "links after rename over one"
    refused "File exists" mkdir a
    refused "not empty" rmdir a
    refused "No such file" cat missing
    refused "Not a directory" cat linked/x
}
special_files() {
    cd "$1"
    mkfifo pipe
    same fifo "$(stat -c %F pipe)"
    mknod device c 1 3
    same "character special file 1 3" "$(stat -c '%F %t %T' device)"
    echo swallowed >device
    mknod block b 7 200
    same "7 c8" "$(stat -c '%t %T' block)"
    python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("sock")'
    same socket "$(stat -c %F sock)"
}
attributes() {
    cd "$1"
    touch -d '2001-02-03 04:05:06.789012345 UTC' stamped
    same 981173106.789012345 "$(stat -c %.9Y stamped)" mtime
    chmod 4751 stamped
    same 4751 "$(stat -c %a stamped)" mode
    chown 1001:1002 stamped
    same "1001 1002" "$(stat -c '%u %g' stamped)" owner
    truncate -s 1M stamped
    same 1048576 "$(stat -c %s stamped)" "grown by truncate"
    truncate -s 5 stamped
    same 5 "$(stat -c %s stamped)" "cut by truncate"
    umask 027
    : >masked
    same 640 "$(stat -c %a masked)" "mode under umask"
}
names() {
    cd "$1"
    long=$(printf 'n%.0s' $(seq 255))
    echo x >"$long"
    same x "$(cat "$long")"
    refused "too long" touch "${long}n"
    echo y >"ünï cødé
newline"
    same 2 "$(find . -maxdepth 1 -name '*newline' -o -maxdepth 1 -name 'nnn*' | grep -c '^\./')"
    rm -- "$long" ü*
}
open_and_gone() {
    cd "$1"
    exec 3<>victim
    echo before >&3
    rm victim
    echo after >&3
    same 2 "$(wc -l </proc/self/fd/3)" "lines of a removed open file"
    exec 3>&-
    sleep 0.2
    refused "No such file" ls victim
}
whole() {
    df -P "$1" | tail -n 1
    same 1 "$(stat -f -c '%b %f' "$1" | awk '{ print ($1 > 1000 && $2 > 0 && $2 <= $1) }')" "statfs"
    same 255 "$(stat -f -c %l "$1")" "longest name"
}
empty() { cd "$1" && rm -rf -- * && same 0 "$(ls -A | grep -vc '^\.nfs')" left; }

for version in 4.2 4.1 4.0 3; do
    dir=/mnt/v$version
    if ! step "v$version mounts" client_mount "$version" "$dir"; then continue; fi
    grep " $dir " /proc/mounts
    step "v$version: files, directories, links" make_things "$dir"
    step "v$version: fifos, devices, sockets" special_files "$dir"
    step "v$version: attributes" attributes "$dir"
    step "v$version: long and strange names" names "$dir"
    step "v$version: a removed file stays open" open_and_gone "$dir"
    step "v$version: df and statfs" whole "$dir"
    step "v$version: all removed" empty "$dir"
    step "v$version unmounts" umount "$dir"
done
step "the gateway lives" gateway_alive
step "the gateway ends when told" gateway_stop

# --- rpcbind: clients of NFSv3 that are not told the ports

mapped() { rpcinfo -p 127.0.0.1 | grep -q "^ *$1 *$2 *tcp *2049 "; }
unmapped() { ! mapped "$1" "$2"; }
registered() {
    pgrep -x rpcbind || rpcbind
    eventually 20 test -S /run/rpcbind.sock
    # Nobody else has registered.
    unmapped 100003 3
    SERVER_KEYS="rpcbind = true"
    gateway_start
    eventually 20 mapped 100003 3
    eventually 20 mapped 100003 4
    eventually 20 mapped 100005 3
    rpcinfo -p 127.0.0.1
    mkdir -p /mnt/mapped
    mount -t nfs -o vers=3,proto=tcp,nolock "$SERVER:/export" /mnt/mapped
    grep " /mnt/mapped " /proc/mounts
    echo mapped >/mnt/mapped/file
    same mapped "$(cat "$STORE/file")"
    umount /mnt/mapped
    gateway_stop
    eventually 20 unmapped 100003 3
    eventually 20 unmapped 100005 3
}
step "v3 mounts without ports, by rpcbind" registered
