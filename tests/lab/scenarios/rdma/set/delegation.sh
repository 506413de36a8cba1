# title: over RDMA: delegations: what one client caches, another may change
# seconds: 600
# ci: no
# Its steps were seen to pass over RDMA by hand; as a scenario it has not been run yet.

. /lab/guest/rdma.sh
over_rdma
. /lab/scenarios/nfs/delegation.sh
