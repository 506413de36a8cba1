# The wire to the other machine, where there is one. Its driver may take longer
# than udev waits.
# shellcheck shell=bash

if grep -qs 0x020000 /sys/bus/pci/devices/*/class; then
    modprobe virtio_net
    for _ in $(seq 1 600); do
        [ ! -d /sys/class/net/eth0 ] || break
        sleep 0.1
    done
    if [ "$HOST" = a ]; then ip addr add 10.8.0.1/24 dev eth0; else ip addr add 10.8.0.2/24 dev eth0; fi
    ip link set eth0 up
fi
