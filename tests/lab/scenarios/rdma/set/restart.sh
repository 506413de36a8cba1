# title: over RDMA: kill -9 of the gateway under load: clients recover, nothing acknowledged is lost
# seconds: 1000
# ci: no

. /lab/guest/rdma.sh
over_rdma
. /lab/scenarios/nfs/restart.sh
