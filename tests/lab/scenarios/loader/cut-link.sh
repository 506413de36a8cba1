# title: a link of the loader that is cut without a word: it reads on over another connection
# seconds: 400
# ci: no
# Requests are in flight, so that nothing probes the connection: without a limit of
# its own the kernel would repeat them for a quarter of an hour.

STEP_SECONDS=200
CUT_SECONDS=120
store_make "$(best_store)"
need "the gateway serves" gateway_start
head -c $((64 << 20)) /dev/urandom >"$STORE/file"
sync "$STORE/file"

ports() { ip netns exec client-b ss -Htn state established "dport = :2049" | awk '{ print $3 }' | sed 's/.*://'; }
connected() { [ -n "$(ports)" ]; }
# Nothing of these ports leaves the client any more; those of new connections do.
cut_ports() { for port in $(ports); do ip -n client-b rule add ipproto tcp sport "$port" prohibit; done; }

copied_over_a_cut() {
    local job began
    began=$(now)
    # Requests stay in flight: a gateway that stands still answers nothing, and its
    # kernel acknowledges.
    kill -STOP "$(cat /run/zgate/pid)"
    ip netns exec client-b "$ZGATE" cp "nfs://$SERVER_FOR_B/export/file?rdma=off&connections=2" /tmp/copy &
    job=$!
    eventually 30 connected
    sleep 1
    cut_ports
    kill -CONT "$(cat /run/zgate/pid)"
    wait $job
    figure "the copy took" "$(since "$began")" s
    cmp "$STORE/file" /tmp/copy
    local took
    took=$(since "$began")
    [ "${took%.*}" -lt $CUT_SECONDS ] || fail "a cut link took $took s"
}
step "a file is copied over a cut" copied_over_a_cut
step "the gateway lives" gateway_alive
