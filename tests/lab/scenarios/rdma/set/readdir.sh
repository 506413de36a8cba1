# title: over RDMA: a directory of 3000 files is listed whole, while it changes too
# seconds: 600

. /lab/guest/rdma.sh
over_rdma
. /lab/scenarios/nfs/readdir.sh
