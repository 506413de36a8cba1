# The second machine: a client that does what the first one leaves in the share
# (see peer.sh). Orders do not take the wire, so that the wire can be cut. Few
# programs are started here: each costs an emulated machine a tenth of a second.
# shellcheck shell=bash

modprobe -a nfs nfsv3 nfsv4 2>/dev/null
echo host-b >/sys/fs/nfs/net/nfs_client/identifier
JOBS=/lab/peer
mkdir -p "$JOBS" /run/jobs
# Orders that were under way when this machine crashed are void.
rm -f "$JOBS"/[0-9]*

agent_job() {
    local id=$1
    echo "$BASHPID" >"/run/jobs/$id"
    timeout --kill-after=5 600 bash "$JOBS/$id.job" >"$JOBS/$id.out" 2>&1 </dev/null
    echo $? >"$JOBS/$id.exit"
}
export -f agent_job
export JOBS

cat /proc/sys/kernel/random/boot_id >"$JOBS/ready.part"
mv "$JOBS/ready.part" "$JOBS/ready"
mkfifo /run/never
exec 9<>/run/never
declare -A begun
while :; do
    for job in "$JOBS"/*.job; do
        id=${job##*/}
        id=${id%.job}
        [ -z "${begun[$id]:-}" ] && [ -e "$job" ] || continue
        begun[$id]=1
        setsid bash -c "agent_job $id" &
    done
    read -r -t 0.1 -u 9
done
