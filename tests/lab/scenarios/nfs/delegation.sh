# title: delegations: what one client caches, another may change
# seconds: 300

store_make "$(best_store)"
need "the gateway serves" gateway_start

recalled() {
    local a=$1 b=$2 n
    echo 0 >"$a/file"
    for n in 1 2 3; do
        same $((n - 1)) "$(cat "$a/file")" "before round $n"
        same $((n - 1)) "$(cat "$b/file")" "at b before round $n"
        echo $n >"$b/file"
        same $n "$(cat "$a/file")" "after round $n"
    done
}
# An open reader at one client, a writer at the other: the writer must not
# wait for a lease.
writer_waits() {
    local a=$1 b=$2 began
    echo first >"$a/held"
    exec 5<"$a/held"
    cat <&5 >/dev/null
    began=$(now)
    echo second >>"$b/held"
    figure "v$3 write against a read delegation" "$(since "$began")" s
    same 1 "$(since "$began" | awk '{ print ($1 < 8) }')" "quick enough"
    exec 5<&-
    same 2 "$(wc -l <"$a/held")" lines
}
reader_of_write_delegation() {
    local a=$1 b=$2 began
    exec 5>"$a/dirty"
    echo dirty >&5
    began=$(now)
    same 6 "$(stat -c %s "$b/dirty")" "size seen by the other client"
    figure "v$3 stat against a write delegation" "$(since "$began")" s
    same dirty "$(cat "$b/dirty")" "content seen by the other client"
    figure "v$3 read against a write delegation" "$(since "$began")" s
    exec 5>&-
}
removed() {
    local a=$1 b=$2
    echo x >"$a/victim"
    cat "$a/victim" >/dev/null
    rm "$b/victim"
    sleep 4
    refused "No such file" cat "$a/victim"
    echo x >"$a/source"
    cat "$a/source" >/dev/null
    mv "$b/source" "$b/target"
    same x "$(cat "$b/target")"
    refused "No such file" sh -c "sleep 4; cat $a/source"
}
own_changes() {
    local a=$1
    echo x >"$a/own"
    cat "$a/own" >/dev/null
    chmod 4711 "$a/own"
    chown 1001 "$a/own"
    truncate -s 1M "$a/own"
    touch -d 2001-01-01 "$a/own"
    mv "$a/own" "$a/own2"
    ln "$a/own2" "$a/own3"
    rm "$a/own2" "$a/own3"
}
given() {
    local count
    count=$(awk '/OPEN_NOATTR:|DELEGRETURN:/ { sum += $2 } END { print sum + 0 }' /proc/self/mountstats)
    figure "DELEGRETURN and OPEN_NOATTR calls" "$count" calls
    count=$(awk '$1 == "DELEGRETURN:" { sum += $2 } END { print sum + 0 }' /proc/self/mountstats)
    [ "$count" -gt 0 ] || fail "no delegation was ever given"
}
for version in 4.2 4.1 4.0; do
    # Directories are looked at again after 2 s: without a delegation a name
    # that moved is noticed soon; with one that was not recalled, never.
    client_mount $version /mnt/a acdirmin=1,acdirmax=2
    client_b_mount $version /mnt/b acdirmin=1,acdirmax=2
    step "v$version: read here, write there" recalled /mnt/a /mnt/b
    step "v$version: a writer against an open reader" writer_waits /mnt/a /mnt/b $version
    step "v$version: a reader against a writer" reader_of_write_delegation /mnt/a /mnt/b $version
    step "v$version: removed and renamed by the other" removed /mnt/a /mnt/b
    step "v$version: the holder's own changes recall nothing" own_changes /mnt/a
    step "v$version: delegations were given" given
    umount /mnt/a /mnt/b
done
step "the gateway lives" gateway_alive
