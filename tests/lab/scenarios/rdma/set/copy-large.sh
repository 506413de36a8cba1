# title: over RDMA: a large file is copied over each version and comes back the same
# seconds: 800
# ci: no
# Minutes, for what the others of the set show, too; passed twice.

. /lab/guest/rdma.sh
over_rdma
. /lab/scenarios/nfs/copy-large.sh
