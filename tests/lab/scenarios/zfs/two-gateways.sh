# title: two gateways of the template unit, a pool each: one pool moves, the other's clients notice nothing
# seconds: 400
# ci: no

. /lab/guest/pair.sh
. /lab/guest/service.sh
STEP_SECONDS=120
[ -d /sys/module/zfs ] || skip "this image has no ZFS"
trap 'capture_stop' EXIT

address() { if [ "$1" = one ]; then echo 10.9.0.1; else echo 10.9.0.5; fi; }
pool_of() {
    zpool create -f -O mountpoint="/scratch/$1" -O acltype=posixacl -O xattr=sa "$1" "$2"
    zfs create "$1/zgate"
    zfs create "$1/data"
    chmod 1777 "/scratch/$1/data"
    install -d -m 700 "/scratch/$1/zgate/state"
    install -d "/scratch/$1/zgate/conf.d" /etc/zgate
    cat >"/scratch/$1/zgate/zgate.toml" <<END
[server]
listen = ["$(address "$1"):2049"]
metrics_listen = "127.0.0.1:947$([ "$1" = one ] && echo 1 || echo 2)"
state_dir = "/scratch/$1/zgate/state"
conf_dir = "/scratch/$1/zgate/conf.d"
admin_socket = "/run/zgate/$1.sock"
lease_seconds = $LEASE_SECONDS
grace_seconds = $LEASE_SECONDS

[[export]]
path = "/scratch/$1/data"
pseudo = "/export"
clients = [{ match = "10.9.0.0/24", access = "rw", squash = "none" }]
END
    ln -sf "/scratch/$1/zgate/zgate.toml" "/etc/zgate/$1.toml"
}
pools() {
    ip address replace 10.9.0.5/24 dev veth-a
    pool_of one $STORE_DISK
    pool_of two $OTHER_DISK
    zpool export one
    zpool export two
}
install_unit() {
    install -m 755 /lab/zgate /usr/local/bin/zgate
    manager_start
    # The mounts of the pools are the manager's.
    under_manager zpool import -d /dev one
    under_manager zpool import -d /dev two
    under_manager sh -c 'cp /lab/deploy/systemd/zgate@.service /run/systemd/system/ && systemctl daemon-reload'
}
starts() { under_manager systemctl start "zgate@$1" || { under_manager systemctl status "zgate@$1"; return 1; }; }
stops() { under_manager systemctl stop "zgate@$1"; }
mounts() {
    for name in one two; do
        mkdir -p "/mnt/$name" "/mnt/other-$name"
        nsenter --net=/run/netns/client-b mount -t nfs -o vers=4.2,port=2049 "$(address $name):/export" "/mnt/$name"
        mount -t nfs -o vers=4.2,port=2049 "$(address $name):/export" "/mnt/other-$name"
        load_start "$name" "/mnt/$name"
    done
}
# The time of the other one's writer begins here.
moves() {
    kill -TERM "$(cat /tmp/writer-two)"
    eventually 30 process_ended /tmp/writer-two
    writer_start two /mnt/two
    local before
    before=$(records two)
    stops one
    under_manager zpool export one
    sleep 5
    writer_goes_on two 5
    under_manager zpool import -d /dev one
    starts one
    writer_goes_on one 90
    writer_goes_on two 5
    figure "records of the other pool's client meanwhile" $(($(records two) - before)) records
    figure "longest fsync: pool that moves" "$(longest one)" s
    figure "longest fsync: the other pool" "$(longest two)" s
    # Its clients had to reclaim nothing: no grace, no new start.
    same 0 "$(under_manager /usr/local/bin/zgate status --json --socket /run/zgate/two.sock | jq .grace_seconds_left)" "grace of the other"
}
checks() { load_check one /mnt/other-one; load_check two /mnt/other-two; }
need "two pools with a gateway's state on each" pools
need "the unit is installed" install_unit
need "the first gateway starts" starts one
need "the second gateway starts" starts two
need "a client of each, with a writer and a lock" mounts
step "one pool goes and comes back" moves
step "every acknowledged record is there, every lock is held" checks
step "the gateways stop" stops one
step "both" stops two
