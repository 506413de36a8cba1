# title: a pool is exported and imported under a running gateway: files and a LUN come back, the rest goes on
# seconds: 240
# ci: no

. /lab/guest/iscsi.sh
store_make zfs
zfs create lab/data
chmod 777 "$STORE/data"
zfs create -s -V 256M -o volblocksize=16K lab/vol
STAYS=/scratch/stays
mkdir -p $STAYS
chmod 777 $STAYS
truncate -s 64M $STAYS/disk.img
SOFT="soft,timeo=50,retrans=2"

# with_pool or without it: what does not lie in the pool is always there.
configured() {
    EXPORTS=()
    export_add $STAYS /stays
    MORE_CONFIG="[iscsi]
listen = [\"0.0.0.0:3260\"]

[[target]]
name = \"$TARGET\"
allow_any_initiator = true

[[target.lun]]
number = 0
path = \"$STAYS/disk.img\"
"
    [ "$1" = with_pool ] || return 0
    export_add "$STORE/data" /data
    MORE_CONFIG+="
[[target.lun]]
number = 1
path = \"/dev/zvol/lab/vol\"
"
}
# reload with_pool|without_pool [--force]
reload() {
    configured "$1"
    gateway_config
    "$ZGATE" reload "${@:2}"
}
works() { echo "$1" >"$2/file" && sync "$2/file" && same "$1" "$(cat "$2/file")"; }
disk_writes() { dd if=/tmp/block of="$(iscsi_disk 127.0.0.1 "$1")" bs=64k oflag=direct status=none; }
disk_reads() { dd if="$(iscsi_disk 127.0.0.1 "$1")" bs=64k count=16 iflag=direct status=none; }

before() {
    works one /mnt/data
    same one "$(cat /mnt/data3/file)"
    works one /mnt/stays
    pattern /tmp/block 1
    eventually 20 disk_there 127.0.0.1 1
    disk_writes 0
    disk_writes 1
    disk_reads 1 | cmp /tmp/block -
}
# Like any process the gateway keeps what it serves.
busy() {
    refused "busy" zpool export lab
    zpool list lab
    works two /mnt/data
}
let_go() {
    local began
    refused "take away what is in use" reload without_pool
    began=$(now)
    reload without_pool --force
    eventually 20 zpool export lab || { ls -l "/proc/$(cat /run/zgate/pid)/fd" | grep -E 'scratch|zd'; fail "the gateway keeps the pool"; }
    figure "pool exported after" "$(since "$began")" s
    refused "no such pool" zpool list lab
}
others_go_on() {
    works three /mnt/stays
    disk_writes 0
    disk_reads 0 | cmp /tmp/block -
    drop_caches
    refused "Stale\|Input/output\|No such\|Permission" cat /mnt/data/file
    refused "Stale\|Input/output\|No such\|Permission" cat /mnt/data3/file
    refused "error" disk_reads 1
}
comes_back() {
    zpool import lab
    eventually 20 test -b /dev/zvol/lab/vol
    reload with_pool
    eventually 60 same two "$(cat /mnt/data/file)"
    eventually 60 works four /mnt/data
    same four "$(cat "$STORE/data/file")" "at the store"
    eventually 60 works five /mnt/data3
    eventually 30 disk_reads 1 >/dev/null
    disk_reads 1 | cmp /tmp/block -
    disk_writes 1
}
# A pool does not always come back under its old place.
elsewhere() {
    reload without_pool --force
    eventually 20 zpool export lab
    zpool import -R /scratch/altroot lab
    STORE=/scratch/altroot$STORE
    eventually 20 test -b /dev/zvol/lab/vol
    reload with_pool
    eventually 60 works six /mnt/data
    same six "$(cat "$STORE/data/file")" "at the store"
}

configured with_pool
need "the gateway serves" gateway_start
client_mount 4.2 /mnt/data $SOFT /data
client_mount 3 /mnt/data3 $SOFT /data
client_mount 4.2 /mnt/stays $SOFT /stays
need "the initiator runs" initiator_start
need "discovery" portal_discover
need "login" portal_login
step "files and disks work" before
step "a pool that is served is busy" busy
step "no longer configured: the pool can be exported" let_go
step "what does not lie in it goes on, what does hears errors" others_go_on
step "imported and configured again: clients and the initiator go on" comes_back
step "imported under another root: the same files for the clients" elsewhere
step "logout" portal_logout
step "the gateway lives" gateway_alive
