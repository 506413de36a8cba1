# The wire to the other machine, where there is one.
# shellcheck shell=bash

if [ -d /sys/class/net/eth0 ]; then
    if [ "$HOST" = a ]; then ip addr add 10.8.0.1/24 dev eth0; else ip addr add 10.8.0.2/24 dev eth0; fi
    ip link set eth0 up
fi
