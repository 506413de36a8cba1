# title: over RDMA: a dataset unmounted, renamed or destroyed while exported harms only itself
# seconds: 480
# ci: no

. /lab/guest/rdma.sh
over_rdma
. /lab/scenarios/nfs/dataset-gone.sh
