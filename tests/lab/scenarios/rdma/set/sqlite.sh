# title: over RDMA: sqlite keeps its locks, its transactions and its data
# seconds: 800
# ci: no

. /lab/guest/rdma.sh
over_rdma
. /lab/scenarios/nfs/sqlite.sh
