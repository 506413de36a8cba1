# title: over RDMA: user extended attributes over v4.2
# seconds: 240
# ci: no

. /lab/guest/rdma.sh
over_rdma
. /lab/scenarios/nfs/xattr.sh
