# title: over RDMA: a directory of 3000 files is listed whole, while it changes too
# seconds: 600
# ci: no
# Minutes, for what the others of the set show, too; passed twice.

. /lab/guest/rdma.sh
over_rdma
. /lab/scenarios/nfs/readdir.sh
