# title: over RDMA: server-side copies: copy_file_range, reflinks, across files and clients
# seconds: 600
# ci: no

. /lab/guest/rdma.sh
over_rdma
. /lab/scenarios/nfs/copy-range.sh
