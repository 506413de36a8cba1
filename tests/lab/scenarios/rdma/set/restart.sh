# title: over RDMA: kill -9 of the gateway under load: clients recover, nothing acknowledged is lost
# seconds: 1000
# ci: no
# Seen over RDMA by hand, v4.2 and v3 passed; as a scenario it has not been run yet.

. /lab/guest/rdma.sh
over_rdma
. /lab/scenarios/nfs/restart.sh
