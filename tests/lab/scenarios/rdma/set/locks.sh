# title: over RDMA: byte-range locks and flock between processes and between two clients
# seconds: 800
# ci: no

. /lab/guest/rdma.sh
over_rdma
. /lab/scenarios/nfs/locks.sh
