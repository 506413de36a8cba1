# title: over RDMA: access control lists as the client and the store see them
# seconds: 300
# ci: no

. /lab/guest/rdma.sh
over_rdma
. /lab/scenarios/nfs/acl.sh
