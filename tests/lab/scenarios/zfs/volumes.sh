# title: volumes through the API: made, mounted, grown, snapshotted, cloned, fenced, deleted; nothing is left
# seconds: 1500
# ci: no

. /lab/guest/iscsi.sh
# Filling a quota of 512 MiB takes an emulated machine minutes.
STEP_SECONDS=400
store_make zfs
[ "$STORE_KIND" = zfs ] || skip "this image has no ZFS"
zfs create lab/k8s
zfs create lab/models
zfs create lab/models/a
echo weights >"$STORE/models/a/model.safetensors"
MORE_CONFIG='[iscsi]
listen = ["0.0.0.0:3260"]

[[volumes.parent]]
dataset = "lab/k8s"
pseudo = "/k8s"
target = "iqn.2026-11.io.zgate:k8s"
sources = ["lab/models/*"]'
export_add /scratch /export
need "the gateway serves" gateway_start
need "the initiator runs" initiator_start
INITIATOR=$(sed 's/InitiatorName=//' /etc/iscsi/initiatorname.iscsi)
FILES=lab%2Fk8s%2Ffiles
DISK=lab%2Fk8s%2Fdisk

# api METHOD PATH [JSON]: the answer is printed and kept in /tmp/answer.
api() { "$ZGATE" api "$1" "$2" ${3:+--data "$3"} | tee /tmp/answer; return "${PIPESTATUS[0]}"; }
# denied CODE COMMAND…: the API must answer with this error.
denied() {
    local code=$1
    shift
    if "$@"; then fail "succeeded: $*"; return 1; fi
    same "$code" "$(jq -r .error.code /tmp/answer)" "error of $*"
}
volume() { # NAME KIND SIZE [MORE]
    api POST volumes "{\"name\": \"$1\", \"parent\": \"lab/k8s\", \"owner\": \"lab\", \"kind\": \"$2\", \"size_bytes\": $3${4:-}}"
}
MIB=1048576

made() {
    for _ in 1 2; do
        volume files filesystem $((256 * MIB)) ', "properties": {"compression": "zstd"}'
        volume disk block $((256 * MIB)) ', "properties": {"volblocksize": "16384"}'
    done
    same zstd "$(zfs get -Ho value compression lab/k8s/files)" compression
    same 268435456 "$(zfs get -Hpo value refquota lab/k8s/files)" refquota
    same lab "$(zfs get -Ho value zgate:owner lab/k8s/disk)" owner
    denied exists volume files filesystem $((512 * MIB))
    denied no_space volume huge filesystem 1152921504606846976
    denied forbidden api DELETE "volumes/lab%2Fmodels%2Fa?owner=lab"
    zfs list lab/models/a
}
# ZFS makes a dataset in one transaction, and marks it in a later one: the power may
# fail between the two.
begun_is_finished() {
    local one
    zfs create -o refquota=$((64 * MIB)) lab/k8s/begun
    zfs create -s -V $((64 * MIB)) lab/k8s/begun-disk
    zfs create lab/k8s/by-hand
    zfs create -o refquota=$((64 * MIB)) lab/k8s/written
    head -c $MIB /dev/urandom >"$STORE/k8s/written/file"
    zpool sync lab
    for _ in 1 2; do
        volume begun filesystem $((64 * MIB)) ', "properties": {"compression": "zstd"}'
        volume begun-disk block $((64 * MIB))
    done
    same "lab zstd" "$(zfs get -Ho value zgate:owner,compression lab/k8s/begun | xargs)" "what is set on it"
    same lab "$(zfs get -Ho value zgate:owner lab/k8s/begun-disk)" owner
    for one in by-hand written; do
        denied storage volume $one filesystem $((64 * MIB))
        same - "$(zfs get -Ho value zgate:owner lab/k8s/$one)" "owner of $one"
        zfs destroy lab/k8s/$one
    done
    for one in begun begun-disk; do api DELETE "volumes/lab%2Fk8s%2F$one?owner=lab"; done
}
nobody_yet() {
    refused "no such file\|denied" client_mount 4.2 /mnt/files "" /k8s/files
    refused "authorization" portal_discover
}
granted() {
    for _ in 1 2; do
        api PUT "volumes/$FILES/access/node-a" '{"owner": "lab", "addresses": ["127.0.0.1"]}'
        jq -e '.reach.path == "/k8s/files" and .transports == ["tcp"]' /tmp/answer
        api PUT "volumes/$DISK/access/node-a" "{\"owner\": \"lab\", \"initiator\": \"$INITIATOR\"}"
    done
    TARGET=$(jq -r .reach.target /tmp/answer)
    echo "$TARGET" >/tmp/target
    jq -r .reach.naa /tmp/answer >/tmp/naa
    api GET "volumes/$DISK"
    jq -e '.healthy and .access == ["node-a"]' /tmp/answer
}
used() {
    TARGET=$(cat /tmp/target)
    client_mount 4.2 /mnt/files "" /k8s/files
    echo text >/mnt/files/file
    portal_discover && portal_login
    eventually 20 disk_there
    DEVICE=$(iscsi_disk)
    same "0x$(sed 's/naa.//' /tmp/naa)" "$(cat "/sys/block/$(basename "$DEVICE")/device/wwid" | sed 's/naa\./0x/')" identity
    mkfs.ext4 -q -F "$DEVICE"
    mkdir -p /mnt/disk && mount "$DEVICE" /mnt/disk
    echo text >/mnt/disk/file
    sync
    denied in_use api DELETE "volumes/$DISK?owner=lab"
}
sectors() { cat "/sys/block/$(basename "$(iscsi_disk)")/size"; }
grown_to() { [ "$(sectors)" = "$1" ]; }
grown() {
    TARGET=$(cat /tmp/target)
    for _ in 1 2; do
        api PATCH "volumes/$FILES" "{\"owner\": \"lab\", \"size_bytes\": $((512 * MIB))}"
        api PATCH "volumes/$DISK" "{\"owner\": \"lab\", \"size_bytes\": $((512 * MIB))}"
    done
    iscsiadm -m session -R
    eventually 20 grown_to 1048576
    resize2fs "$(iscsi_disk)"
    same 512 "$(df -BM --output=size /mnt/files | tail -1 | tr -dc 0-9)" "MiB of the mount"
    denied in_use api PATCH "volumes/$DISK" "{\"owner\": \"lab\", \"size_bytes\": $MIB}"
}
quota_is_one() {
    refused "quota\|space" dd if=/dev/urandom of=/mnt/files/much bs=1M count=600 conv=fsync
    rm -f /mnt/files/much
}
snapshotted() {
    for _ in 1 2; do
        api PUT "volumes/$FILES/snapshots/one" '{"owner": "lab"}'
        api POST volume-snapshots '{"name": "group", "owner": "lab", "volumes": ["lab/k8s/files", "lab/k8s/disk"]}'
    done
    same "$(zfs get -Hpo value createtxg lab/k8s/files@group)" \
        "$(zfs get -Hpo value createtxg lab/k8s/disk@group)" "transaction group"
    api GET volume-snapshots
    jq -e '[.items[].id] == ["lab/k8s/disk@group", "lab/k8s/files@group", "lab/k8s/files@one"]' /tmp/answer
    echo later >/mnt/files/file
}
cloned() {
    for _ in 1 2; do
        volume restored filesystem $((512 * MIB)) ', "source": {"snapshot": "lab/k8s/files@one"}'
        volume copy block $((768 * MIB)) ', "source": {"volume": "lab/k8s/disk"}'
        volume model filesystem $((64 * MIB)) ', "source": {"dataset": "lab/models/a"}, "read_only": true'
    done
    same 805306368 "$(zfs get -Hpo value volsize lab/k8s/copy)" "size of the copy"
    for one in restored model; do
        api PUT "volumes/lab%2Fk8s%2F$one/access/node-a" '{"owner": "lab", "addresses": ["127.0.0.1"]}'
        client_mount 4.2 "/mnt/$one" "" "/k8s/$one"
    done
    same text "$(cat /mnt/restored/file)" "content of the snapshot"
    same weights "$(cat /mnt/model/model.safetensors)" model
    refused "read-only" touch /mnt/model/x
    eventually 20 test -b /dev/zvol/lab/k8s/copy
    e2fsck -p -f /dev/zvol/lab/k8s/copy || [ $? -le 1 ]
    umount /mnt/restored /mnt/model
}
survives() {
    # Nothing but the datasets has it: not after a kill, not after a reload.
    gateway_kill
    gateway_start
    same later "$(cat /mnt/files/file)" "over NFS"
    echo again >/mnt/disk/again
    sync /mnt/disk/again
    "$ZGATE" reload
    same later "$(cat /mnt/files/file)" "after a reload"
}
fenced() {
    TARGET=$(cat /tmp/target)
    umount /mnt/disk
    for _ in 1 2; do
        api DELETE "volumes/$DISK/access/node-a?owner=lab"
        api DELETE "volumes/$FILES/access/node-a?owner=lab"
    done
    same 0 "$("$ZGATE" sessions --json | jq length)" "sessions of initiators"
    if timeout 20 sh -c 'echo fenced >/mnt/files/fenced'; then fail "written after the fence"; fi
    umount -l /mnt/files
    portal_logout || true
    iscsiadm -m node -T "$TARGET" -o delete || true
}
deleted() {
    denied in_use api DELETE "volumes/$FILES?owner=lab"
    for _ in 1 2; do
        api DELETE "volumes/$FILES/snapshots/one?owner=lab"
        api DELETE "volumes/$FILES/snapshots/group?owner=lab"
        api DELETE "volumes/$DISK/snapshots/group?owner=lab"
    done
    # The clones live on without their origins.
    for _ in 1 2; do
        api DELETE "volumes/$FILES?owner=lab"
        api DELETE "volumes/$DISK?owner=lab"
    done
    zfs list lab/k8s/restored lab/k8s/copy
    for one in restored copy model; do
        api DELETE "volumes/lab%2Fk8s%2F$one?owner=lab"
    done
}
# ZFS destroys snapshots of what somebody has open, and refuses the rest then.
open_keeps_snapshots() {
    local one users
    local at=zgate_2026-11-21_08:00:00_hourly
    volume open-disk block $((16 * MIB))
    volume open-files filesystem $((16 * MIB))
    eventually 20 test -b /dev/zvol/lab/k8s/open-disk
    for one in open-disk open-files; do zfs snapshot "lab/k8s/$one@$at"; done
    sleep 600 </dev/zvol/lab/k8s/open-disk >/dev/null 2>&1 &
    users=$!
    # A container has the mounts of the time of its start.
    unshare --mount --propagation private sleep 600 </dev/null >/dev/null 2>&1 &
    users="$users $!"
    sleep 1
    for one in open-disk open-files; do
        denied in_use api DELETE "volumes/lab%2Fk8s%2F$one?owner=lab"
        zfs list "lab/k8s/$one@$at"
    done
    same yes "$(zfs get -Ho value mounted lab/k8s/open-files)" "mounted again"
    # shellcheck disable=SC2086
    kill $users
    # shellcheck disable=SC2086
    wait $users || true
    for one in open-disk open-files; do api DELETE "volumes/lab%2Fk8s%2F$one?owner=lab"; done
}
# ZFS neither destroys a snapshot that is being sent nor moves it to a clone, but has destroyed
# others before.
sent_keeps_snapshots() {
    local how users
    local first=lab/k8s/sent@zgate_2026-11-21_08:00:00_hourly
    local last=lab/k8s/sent@zgate_2026-11-21_09:00:00_hourly
    volume sent filesystem $((16 * MIB))
    pattern "$STORE/k8s/sent/file" 8
    zfs snapshot "$first"
    zfs snapshot "$last"
    mkfifo /tmp/stream
    for how in alone cloned held; do
        [ $how != cloned ] || zfs clone -o mountpoint=none "$last" lab/sent-clone
        [ $how != held ] || zfs hold backup "$last"
        # It has begun with its first byte, and does not end: no pipe takes all of it.
        rm -f /tmp/begun
        (head -c 1 >/tmp/begun && exec sleep 600) </tmp/stream >/dev/null 2>&1 &
        users=$!
        zfs send "$last" >/tmp/stream 2>/dev/null &
        users="$users $!"
        eventually 20 test -s /tmp/begun
        denied in_use api DELETE "volumes/lab%2Fk8s%2Fsent?owner=lab"
        zfs list "$first" "$last"
        # shellcheck disable=SC2086
        kill $users
        # shellcheck disable=SC2086
        wait $users || true
    done
    api DELETE "volumes/lab%2Fk8s%2Fsent?owner=lab"
    # What is needed has moved to the clone, with its hold.
    zfs release backup "lab/sent-clone@${last#*@}"
    zfs destroy -r lab/sent-clone
}
nothing_left() {
    same "lab/k8s" "$(zfs list -Hr -t all -o name lab/k8s)" datasets
    same "lab/models lab/models/a" "$(zfs list -Hr -t all -o name lab/models | xargs)" "foreign datasets"
    same 0 "$("$ZGATE" targets --json | jq length)" targets
    same 0 "$("$ZGATE" exports --json | jq '[.[] | select(.pseudo_path | startswith("/k8s"))] | length')" exports
    api GET volumes
    jq -e '.items == []' /tmp/answer
    gone() { [ -z "$(ls -A /dev/zvol/lab/k8s 2>/dev/null)" ]; }
    eventually 20 gone
    grep -c 'audit.*volume create' /run/zgate/log
}
# Few: an emulated processor takes seconds for each request.
MANY=$(seq 5)
many_made() {
    local began
    began=$(now)
    for n in $MANY; do
        volume "many-$n" filesystem $((16 * MIB)) >/dev/null
        volume "disk-$n" block $((16 * MIB)) >/dev/null
    done
    figure "10 volumes are made, one after the other, in" "$(since "$began")" s
}
many_granted() {
    local began
    began=$(now)
    for n in $MANY; do
        api PUT "volumes/lab%2Fk8s%2Fmany-$n/access/n" '{"owner": "lab", "addresses": ["127.0.0.1"]}' >/dev/null
        api PUT "volumes/lab%2Fk8s%2Fdisk-$n/access/n" "{\"owner\": \"lab\", \"initiator\": \"$INITIATOR\"}" >/dev/null
    done
    figure "access to 10 volumes is given in" "$(since "$began")" s
    same 5 "$("$ZGATE" targets --json | jq length)" targets
}
many_deleted() {
    local began
    began=$(now)
    for n in $MANY; do
        api DELETE "volumes/lab%2Fk8s%2Fmany-$n?owner=lab"
        api DELETE "volumes/lab%2Fk8s%2Fdisk-$n?owner=lab"
    done
    figure "10 volumes with access are deleted in" "$(since "$began")" s
}

step "volumes are made once, and nothing else is touched" made
step "what a power failure left unmarked is finished, and nothing else" begun_is_finished
step "nobody has access to them" nobody_yet
step "a node gets access" granted
step "the node mounts and logs in" used
step "both grow under their users" grown
step "a quota is a limit" quota_is_one
step "snapshots, and a group of one transaction" snapshotted
step "clones of a snapshot, a volume and a model" cloned
step "a killed gateway and a reload change nothing" survives
step "a node without access is fenced" fenced
step "they are deleted in any order" deleted
step "what somebody has open keeps its snapshots" open_keeps_snapshots
step "what is being sent keeps all snapshots of its volume" sent_keeps_snapshots
step "nothing is left" nothing_left
step "ten volumes are made" many_made
step "a node gets access to all of them" many_granted
step "they are deleted with their access" many_deleted
step "nothing is left of them" nothing_left
