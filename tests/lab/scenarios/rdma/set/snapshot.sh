# title: over RDMA: ZFS snapshots are read over NFS
# seconds: 480
# ci: no

. /lab/guest/rdma.sh
over_rdma
. /lab/scenarios/nfs/snapshot.sh
