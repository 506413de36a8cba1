# title: two ports with the shipped keepalived example: a link is cut and mended under load
# seconds: 1800
# ci: no

. /lab/guest/pair.sh
STEP_SECONDS=600
SERVICE=10.7.0.10
store_make "$(best_store)"
trap 'ports_end; gateway_figures; gateway_logs; capture_stop' EXIT

# The switch and the client are in the second client's name space.
ports() {
    local port
    ip netns exec client-b ip link add switch type bridge
    ip -n client-b link set switch up
    ip -n client-b address add 10.7.0.100/24 dev switch
    for port in 0 1; do
        ip link add "port$port" type veth peer name "end$port" netns client-b
        ip -n client-b link set "end$port" master switch up
        ip address add "10.7.0.$((port + 1))/24" dev "port$port"
        # Two ports in one network: each answers for its own addresses only.
        sysctl -q "net.ipv4.conf.port$port.arp_ignore=1" "net.ipv4.conf.port$port.arp_announce=2" \
            "net.ipv4.conf.port$port.accept_local=1" \
            "net.ipv4.conf.port$port.ignore_routes_with_linkdown=1" "net.ipv4.conf.port$port.rp_filter=0"
        ip link set "port$port" up
    done
    sysctl -q net.ipv4.conf.all.rp_filter=0
}
ports_end() {
    pkill -x keepalived || true
    ip link delete port0
    ip link delete port1
    ip -n client-b link delete switch
}
keeps_alive() {
    sed -e 's/eth0/port0/; s/eth1/port1/; s/192\.0\.2\.10/10.7.0.10/' \
        /lab/deploy/keepalived/two-ports.conf >/tmp/keepalived.conf
    keepalived --use-file=/tmp/keepalived.conf --log-console --dont-fork >"$RESULT/keepalived" 2>&1 &
    eventually 60 at_port 0
}
# Not in a pipe: ip would be killed by one that has read enough.
at_port() { [ -n "$(ip -o address show dev "port$1" to "$SERVICE")" ]; }
mounts() {
    # Mounts of one version share their connections, and the first one says how many.
    service_mount 4.1 /mnt/many nconnect=4
    # A connection is made with its first request.
    eventually 60 four_connections || { connections; return 1; }
    for version in 4.2 4.1 4.0 3; do service_mount "$version" "/mnt/$version"; done
    client_mount 4.2 /mnt/other
}
connections() { ss -Htn state established "( sport = :2049 )" dst 10.7.0.100; }
four_connections() {
    dd if=/dev/zero of=/mnt/many/zero bs=1M count=16 conv=fsync status=none
    same 4 "$(connections | wc -l)" "connections"
}
loads() {
    for name in 4.2 4.1 4.0 many; do load_start "$name" "/mnt/$name"; done
    writer_start 3 /mnt/3
}
goes_on() { for name in 4.2 4.1 4.0 many 3; do writer_goes_on "$name" 60; done; }
cut_first() {
    ip -n client-b link set end0 down
    eventually 60 at_port 1
    goes_on
}
mend_first() {
    ip -n client-b link set end0 up
    eventually 60 at_port 0
    goes_on
}
cut_second() {
    ip -n client-b link set end1 down
    goes_on
    at_port 0
}
checks() {
    for name in 4.2 4.1 4.0 many 3; do
        figure "$name: longest fsync" "$(longest "$name")" s
        load_check "$name" /mnt/other
    done
}
need "two ports at one switch" ports
need "the gateway serves" gateway_start
need "keepalived has the address at the first port" keeps_alive
need "clients mount" mounts
need "writers and locks" loads
step "the first link is cut: the address moves" cut_first
step "it is mended: the address moves back" mend_first
step "the other link is cut: nothing moves" cut_second
step "every acknowledged record is there, every lock is held" checks
step "the gateway lives" gateway_alive
