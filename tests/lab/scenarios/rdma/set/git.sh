# title: over RDMA: git works: commit, clone, gc, fsck
# seconds: 840
# ci: no
# Minutes, for what the others of the set show, too; passed twice.

. /lab/guest/rdma.sh
over_rdma
. /lab/scenarios/nfs/git.sh
