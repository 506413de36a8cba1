# title: a sharded model of 1 GiB over soft-RoCE and TCP, from the gateway and the kernel's server
# seconds: 2400
# machines: 2
# ci: no
# As loader/softroce, which is in CI, with more.

MODEL_MIB=1024
. /lab/scenarios/loader/softroce.sh
