# title: over RDMA: a large file is copied over each version and comes back the same
# seconds: 800

. /lab/guest/rdma.sh
over_rdma
. /lab/scenarios/nfs/copy-large.sh
