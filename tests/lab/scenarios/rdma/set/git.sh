# title: over RDMA: git works: commit, clone, gc, fsck
# seconds: 840

. /lab/guest/rdma.sh
over_rdma
. /lab/scenarios/nfs/git.sh
