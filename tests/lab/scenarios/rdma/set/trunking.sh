# title: over RDMA: session trunking: the kernel finds both addresses and uses them
# seconds: 840
# ci: no

. /lab/guest/rdma.sh
over_rdma
. /lab/scenarios/nfs/trunking.sh
