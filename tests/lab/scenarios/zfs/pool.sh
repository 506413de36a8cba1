# title: the shipped layouts make their pools, here on files
# seconds: 900
# ci: no

[ -d /sys/module/zfs ] || skip "this image has no ZFS"
DISKS=/scratch/disks
mkdir -p $DISKS

# The shipped layout with small files for disks.
small() {
    sed -e "s#/dev/disk/by-id/#$DISKS/#" \
        -e 's/18000207937536/1073741824/; s/1920383410176/1073741824/; s/3840755982336/536870912/' \
        -e 's/600GiB/256MiB/; s/32GiB/128MiB/; s/2TiB/256MiB/' "/lab/layouts/$1.toml" >"/tmp/$1.toml"
    sed -n 's/^path = "\(.*\)"/\1/p' "/tmp/$1.toml" | while read -r path; do
        truncate -s "$([ "$1" = llm ] && echo 1G || echo 512M)" "$path"
    done
}
zgate() { "$ZGATE" "$@"; }
planned_hash() { zgate pool plan "/tmp/$1.toml" --allow-files | sed -n 's/^# hash: //p'; }

shipped() {
    zgate pool devices
    # What is shipped is about disks: files are refused, and the machine is another one.
    for name in llm zfast; do
        zgate pool plan "/lab/layouts/$name.toml" >/tmp/plan
        cmp /tmp/plan "/lab/layouts/$name.plan"
        local hash
        hash=$(sed -n 's/^# hash: //p' /tmp/plan)
        refused "does not exist" zgate pool apply "/lab/layouts/$name.toml" --hash "$hash"
    done
    small llm
    refused "by-id" zgate pool plan /tmp/llm.toml
}
refusals() {
    small zfast
    local hash first
    hash=$(planned_hash zfast)
    refused "not 1234" zgate pool apply /tmp/zfast.toml --allow-files --hash 1234
    first=$(sed -n 's/^path = "\(.*\)"/\1/p' /tmp/zfast.toml | head -n 1)
    mkfs.xfs -q -f "$first"
    refused "nvme0 ($first): not empty: signature xfs" \
        zgate pool apply /tmp/zfast.toml --allow-files --hash "$hash"
    wipefs -q -a "$first"
    parted --script "$first" mklabel gpt
    refused "not empty: signature gpt" zgate pool apply /tmp/zfast.toml --allow-files --hash "$hash"
    wipefs -q -a "$first"
    zpool create -f leftover "$first"
    refused "cannot be had alone\|labels of a ZFS pool" \
        zgate pool apply /tmp/zfast.toml --allow-files --hash "$hash"
    zpool destroy leftover
    refused "labels of a ZFS pool" zgate pool apply /tmp/zfast.toml --allow-files --hash "$hash"
    rm "$first" && truncate -s 511M "$first"
    refused "has 535822336 bytes, not 536870912" \
        zgate pool apply /tmp/zfast.toml --allow-files --hash "$hash"
    truncate -s 512M "$first"
    refused "no such pool" zpool list zfast
}
make() {
    small "$1"
    zgate pool apply "/tmp/$1.toml" --allow-files --hash "$(planned_hash "$1")"
    zpool status "$1"
    refused "pool $1 exists already" \
        zgate pool apply "/tmp/$1.toml" --allow-files --hash "$(planned_hash "$1")"
}
# has DATASET PROPERTY VALUE
has() { same "$3" "$(zfs get -Hp -o value "$2" "$1")" "$1 $2"; }
llm_is_as_described() {
    same 12 "$(zpool get -Hp -o value ashift llm)" ashift
    same on "$(zpool get -Hp -o value autotrim llm)" autotrim
    for dataset in llm llm/inference llm/training llm/tmp llm/backup llm/vm; do
        has $dataset compression lz4
        has $dataset atime off
        # From 2.3 on `on` is what `sa` was, and shown for both.
        case $(zfs get -Hp -o value xattr $dataset) in sa | on) ;; *) fail "$dataset xattr" ;; esac
        has $dataset acltype posix
        has $dataset dnodesize auto
    done
    has llm/inference recordsize 1048576
    has llm/inference special_small_blocks 32768
    has llm/training recordsize 1048576
    has llm/training logbias throughput
    has llm/tmp recordsize 131072
    has llm/tmp sync disabled
    has llm/backup recordsize 1048576
    has llm/vm special_small_blocks 0
    has llm/vm/iscsi0 volblocksize 16384
    has llm/vm/iscsi0 sync always
    has llm/vm/iscsi0 volsize 268435456
    [ "$(zfs get -Hp -o value refreservation llm/vm/iscsi0)" -ge 268435456 ] || fail "the volume is sparse"
    local shape
    shape=$(zpool status -P llm | awk '$1 ~ /^(mirror|special|logs|cache)/ { sub(/-.*/, "", $1); printf "%s ", $1 }')
    same "mirror mirror special mirror logs mirror cache " "$shape" "vdevs"
    eventually 20 test -b /dev/zvol/llm/vm/iscsi0
}
small_blocks_go_to_the_special_vdev() {
    special() { zpool list -Hpv llm | awk '$1 == "special" { on = 1; next } on { print $3; exit }'; }
    local before after
    zpool sync llm
    before=$(special)
    for i in $(seq 100); do head -c 20000 /dev/urandom >"/llm/inference/small$i"; done
    zpool sync llm
    after=$(special)
    figure "special vdev for 100 files of 20 kB" $((after - before)) bytes
    [ $((after - before)) -ge 2000000 ] || fail "the special vdev grew by $((after - before)) bytes only"
    before=$after
    pattern /llm/inference/large 16
    zpool sync llm
    after=$(special)
    [ $((after - before)) -lt 2000000 ] || fail "16 MiB in records of 1M took $((after - before)) bytes of it"
}
zfast_is_as_described() {
    same 12 "$(zpool get -Hp -o value ashift zfast)" ashift
    same on "$(zpool get -Hp -o value autotrim zfast)" autotrim
    for dataset in zfast/datasets zfast/inference zfast/models; do has $dataset recordsize 1048576; done
    has zfast/experiments recordsize 131072
    has zfast/models compression lz4
    same 2 "$(zpool status zfast | grep -c mirror-)" mirrors
    mountpoint -q /zfast/models
}
stops_and_says_how_to_go_back() {
    zpool destroy llm
    rm -f $DISKS/ata-* $DISKS/nvme-SAMSUNG_MZQL21*
    small llm
    # Something is in the way of its mount point.
    mkdir -p /llm && echo busy >/llm/file
    if zgate pool apply /tmp/llm.toml --allow-files --hash "$(planned_hash llm)" >/tmp/said 2>&1; then
        fail "it worked"
    fi
    cat /tmp/said
    grep -q "step 7, create the pool llm, failed" /tmp/said
    grep -q "make nvme0.special" /tmp/said
    # What it names as undoing works, as far as something was done.
    sed -n 's/^  \(rm .*\)/\1/p' /tmp/said | sh -x
    rm -r /llm
    zgate pool apply /tmp/llm.toml --allow-files --hash "$(planned_hash llm)"
}

step "the shipped plans are the reviewed ones" shipped
step "what is not empty, or not repeated, is refused" refusals
step "llm is made" make llm
step "llm is as described" llm_is_as_described
step "small blocks go to the special vdev, large ones do not" small_blocks_go_to_the_special_vdev
step "zfast is made" make zfast
step "zfast is as described" zfast_is_as_described
step "a failure stops it and says how to go back" stops_and_says_how_to_go_back
for pool in llm zfast; do zpool destroy -f $pool; done
rm -rf $DISKS /llm /zfast
