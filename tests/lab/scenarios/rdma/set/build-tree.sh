# title: over RDMA: a C source tree builds with make -j2
# seconds: 800
# ci: no

. /lab/guest/rdma.sh
over_rdma
. /lab/scenarios/nfs/build-tree.sh
