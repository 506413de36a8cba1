# Functions for scenarios with disks whose devices are not there when the gateway starts.
# shellcheck shell=bash

# take_away ZVOL, give_back ZVOL: its device goes and comes, as if udev had not made it yet.
take_away() {
    zfs set volmode=none "$1"
    eventually 20 test ! -e "/dev/zvol/$1"
}
give_back() {
    zfs set volmode=default "$1"
    eventually 30 test -b "/dev/zvol/$1"
}

# logged_in TARGET: the session with it has a connection.
logged_in() {
    local session
    for session in /sys/class/iscsi_session/session*; do
        [ "$(cat "$session/targetname")" = "$1" ] || continue
        grep -q -x LOGGED_IN "$session/state" && return 0
    done
    return 1
}

# writer_start NAME: appends to a file of /mnt/NAME until writer_end. Its notes: /tmp/notes.NAME.
writer_start() {
    rm -f "/tmp/notes.$1"
    python3 /lab/guest/writer.py "/mnt/$1/written" "/tmp/notes.$1" 900 0.2 &
    echo $! >"/tmp/writer.$1"
    eventually 30 test -s "/tmp/notes.$1"
}
# writer_end NAME: all that it has written was acknowledged.
writer_end() {
    local pid
    pid=$(cat "/tmp/writer.$1")
    kill "$pid"
    wait "$pid" || fail "the writer of $1 failed"
    figure "longest fsync on $1" "$(cut -d' ' -f2 "/tmp/notes.$1")" s
}
records_of() { cut -d' ' -f1 "/tmp/notes.$1"; }
has_more_records() { [ "$(records_of "$1")" -gt "$2" ]; }
# writes_on NAME: its writer goes on within 20 s.
writes_on() { eventually 20 has_more_records "$1" "$(records_of "$1")"; }
# writes_nothing NAME: it waits, for 10 s at least, and has not failed.
writes_nothing() {
    local before
    before=$(records_of "$1")
    sleep 10
    same "$before" "$(records_of "$1")" "records on $1, whose device is not there"
    kill -0 "$(cat "/tmp/writer.$1")" || fail "the writer of $1 has not waited"
}

# ext4_lives NAME: the file system at /mnt/NAME has met no error and takes a file.
ext4_lives() {
    local disk
    disk=$(basename "$(awk -v at="/mnt/$1" '$2 == at { print $1 }' /proc/mounts)")
    same 0 "$(cat "/sys/fs/ext4/$disk/errors_count")" "errors of ext4 on $1"
    grep -q " /mnt/$1 ext4 rw" /proc/mounts || fail "ext4 on $1 is read-only"
    echo alive >"/mnt/$1/file"
    sync "/mnt/$1/file"
}

# reads DISK: a block of it, past what this machine remembers.
reads() { dd if="$1" of=/dev/null bs=4096 count=1 iflag=direct status=none; }
