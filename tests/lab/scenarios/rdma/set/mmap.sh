# title: over RDMA: mapped files: written, read, private, shared between clients after close
# seconds: 400
# ci: no

. /lab/guest/rdma.sh
over_rdma
. /lab/scenarios/nfs/mmap.sh
