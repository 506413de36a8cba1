# title: over RDMA: users: root is squashed, others have their own rights, read-only is read-only
# seconds: 480
# ci: no

. /lab/guest/rdma.sh
over_rdma
. /lab/scenarios/nfs/squash.sh
