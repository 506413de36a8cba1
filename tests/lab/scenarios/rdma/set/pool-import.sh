# title: over RDMA: a pool is exported and imported under a running gateway: files and a LUN come back, the rest goes on
# seconds: 480
# ci: no

. /lab/guest/rdma.sh
over_rdma
. /lab/scenarios/nfs/pool-import.sh
