# title: figures: fio over iSCSI against zgate and against LIO, same zvol
# seconds: 300
# ci: no

. /lab/guest/load.sh
. /lab/guest/iscsi.sh
. /lab/guest/lio.sh
store_make "$(best_store)"
disk_make 128M
iscsi_config "$DEVICE"

used() {
    portal_discover
    portal_login
    loads "$1" "$(iscsi_disk)" 96m
    portal_logout
}
ours() {
    gateway_start
    initiator_start
    used zgate
    gateway_stop
}
lio() {
    lio_starts 127.0.0.1
    used LIO
}
step "zgate" ours
step "LIO" lio
step "LIO ends" lio_ends 127.0.0.1
