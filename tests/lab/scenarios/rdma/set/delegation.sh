# title: over RDMA: delegations: what one client caches, another may change
# seconds: 600
# ci: no

. /lab/guest/rdma.sh
over_rdma
. /lab/scenarios/nfs/delegation.sh
