# title: over RDMA: git works: commit, clone, gc, fsck
# seconds: 840
# ci: no
# Not run over RDMA yet.

. /lab/guest/rdma.sh
over_rdma
. /lab/scenarios/nfs/git.sh
