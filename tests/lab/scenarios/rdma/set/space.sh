# title: over RDMA: space: fallocate, holes punched and found, sizes told
# seconds: 600
# ci: no

. /lab/guest/rdma.sh
over_rdma
. /lab/scenarios/nfs/space.sh
