#!/bin/sh
# Tells zgate of datasets that got other content by `zfs rollback` or `zfs receive`, where it may
# not read the events of ZFS itself, so that NFS clients and initiators learn of it
# (docs/OPERATIONS.md, "ZFS"). OpenZFS's event daemon, zed(8), runs this file for each event in the
# history of a pool: /etc/zfs/zed.d/history_event-zgate.sh.

# For both, ZFS swaps the dataset with a temporary one. Of thousands of events, as of a large
# `zfs receive`, no other one starts a program.
[ "$ZEVENT_HISTORY_INTERNAL_NAME" = "clone swap" ] || exit 0
# zed also runs what package tools and editors leave beside this file: *.sh.dpkg-dist, *.sh.rpmnew,
# *.sh~. One that was switched off stays so.
case $0 in
    *.sh) ;;
    *) exit 0 ;;
esac

# The event has the name of the temporary one: pool/a/%rollback, pool/a/%recv.
dataset=${ZEVENT_HISTORY_DSNAME%/%*}

PATH=$PATH:/usr/local/bin
# A removed package leaves this file.
command -v zgate >/dev/null || exit 0
# Admin sockets that lie elsewhere: ZED_ZGATE_SOCKETS="/path/a.sock /path/b.sock" in zed.rc. Their
# paths have no blanks.
# shellcheck disable=SC1090,SC1091
[ ! -r "$ZED_ZEDLET_DIR/zed.rc" ] || . "$ZED_ZEDLET_DIR/zed.rc"

# tell SOCKET: zed has few places for scripts, and one that hangs would keep its place.
tell() {
    said=$(timeout -k 1 5 zgate replaced --socket "$1" -- "$dataset" 2>&1) ||
        timeout 1 logger -t zgate-zed -p daemon.warning -- \
            "$dataset has other content, and the gateway at $1 was not told: ${said:-no answer within 5 s}"
}

# shellcheck disable=SC2086
for socket in /run/zgate/*.sock $ZED_ZGATE_SOCKETS; do
    # A gateway that does not run has none.
    [ -S "$socket" ] || continue
    # Those of the API are beside them.
    case $socket in
        */api.sock) [ ! -S "${socket%/*}/admin.sock" ] || continue ;;
        *-api.sock) [ ! -S "${socket%-api.sock}.sock" ] || continue ;;
    esac
    tell "$socket" &
done
wait
exit 0
