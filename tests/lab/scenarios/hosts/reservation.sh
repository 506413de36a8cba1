# title: two machines with one disk: persistent reservations keep the other out, through a restart
# seconds: 300
# machines: 2
# ci: no

. /lab/guest/peer.sh
. /lab/guest/iscsi.sh
store_make "$(best_store)"
iscsi_config "$STORE/disk.img" 'size = "64MiB"'
export TARGET A_ADDRESS
need "the gateway serves" gateway_start
need "the second machine is there" b_ready
need "A's initiator runs" initiator_start
a_login() { portal_discover && portal_login; }
b_login() {
    initiator_start
    portal_discover $A_ADDRESS
    portal_login $A_ADDRESS
}
# Each machine names the disk its own way.
disk_here() { if [ "$HOSTNAME" = zgate-lab-b ]; then iscsi_disk $A_ADDRESS; else iscsi_disk; fi; }
pr() { sg_persist "$@" "$(disk_here)"; }
writes() { dd if=/dev/urandom of="$(disk_here)" bs=4096 count=1 oflag=direct status=none; }
reads() { dd if="$(disk_here)" of=/dev/null bs=4096 count=1 iflag=direct status=none; }

reserved() {
    pr --out --register --param-sark=0xa --param-aptpl
    on_b pr --out --register --param-sark=0xb --param-aptpl
    same 2 "$(pr --in --read-keys | grep -c '0x[ab]$')" "registered keys"
    pr --out --reserve --param-rk=0xa --prout-type=1
    writes
    refused "error\|conflict\|Invalid exchange" on_b writes
    on_b reads
}
after_restart() {
    gateway_kill
    gateway_start
    eventually 60 reads
    eventually 60 on_b reads
    refused "error\|conflict\|Invalid exchange" on_b writes
    pr --in --read-reservation
    writes
}
# Fencing: the other machine takes over.
preempted() {
    on_b pr --out --preempt --param-rk=0xb --param-sark=0xa --prout-type=1
    on_b writes
    refused "error\|conflict\|Invalid exchange" writes
    on_b pr --out --clear --param-rk=0xb
    writes
}
need "A logs in" a_login
need "B logs in" on_b b_login
need "A reserves: B may read only" reserved
step "the gateway is killed: the reservation stands" after_restart
step "B preempts A" preempted
step "logout of A" portal_logout
step "logout of B" on_b portal_logout $A_ADDRESS
step "the gateway lives" gateway_alive
