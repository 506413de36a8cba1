# title: over RDMA: a full file system says so at the client, and recovers
# seconds: 1200
# ci: no
# Nine minutes; seen to pass once.

. /lab/guest/rdma.sh
over_rdma
. /lab/scenarios/nfs/full.sh
