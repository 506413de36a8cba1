# title: over RDMA: every version of NFS mounts; files are made, renamed, linked and removed
# seconds: 800
# ci: no

. /lab/guest/rdma.sh
over_rdma
. /lab/scenarios/nfs/basic.sh
