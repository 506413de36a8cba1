# title: zgate snapshot send: full, incremental, interrupted and resumed, raw
# seconds: 900
# ci: no

store_make zfs
[ "$STORE_KIND" = zfs ] || skip "this image has no ZFS"
zpool create -f -O mountpoint=/scratch/copy copy "$OTHER_DISK"
zfs create -o recordsize=1M lab/src
zgate() { "$ZGATE" "$@"; }
# What stands for ssh: gets `-- HOST COMMAND` and hands the command to a shell,
# as a server does. $CUT: ends the stream after so many bytes.
cat >/tmp/ssh <<'END'
#!/bin/bash
[ "$1" = -- ] && [ "$2" = backup@there ] && [ $# = 3 ] || { echo "ssh got: $*" >&2; exit 255; }
echo "$3" >>/tmp/ssh.log
if [ -s /tmp/cut ] && [[ $3 == *receive* && $3 != *receive_resume_token* ]]; then
    head -c "$(cat /tmp/cut)" | sh -c "$3"
else
    exec sh -c "$3"
fi
END
chmod 755 /tmp/ssh

make_data() {
    pattern "$STORE/src/large" 48
    mkdir "$STORE/src/dir" && for i in 1 2 3; do echo $i >"$STORE/src/dir/$i"; done
    zfs snapshot lab/src@one
    pattern "$STORE/src/second" 8
    rm "$STORE/src/dir/2"
    zfs snapshot lab/src@two
    zfs bookmark lab/src@one lab/src#mark
}
# Both trees are one, byte for byte.
equal() {
    local source=$1 copy=$2
    zfs mount "$copy" 2>/dev/null || true
    diff -r "$(zfs get -H -o value mountpoint "$source")/.zfs/snapshot/$3" \
        "$(zfs get -H -o value mountpoint "$copy")/.zfs/snapshot/$3"
    same "$(zfs get -Hp -o value guid "$source@$3")" "$(zfs get -Hp -o value guid "$copy@$3")" guid
}
to_a_file() {
    local bytes
    bytes=$(zgate snapshot send lab/src@one --to file:/tmp/one.zfs --dry-run --json | jq .estimate_bytes)
    [ "$bytes" -gt 50000000 ] || fail "estimate $bytes"
    zgate snapshot send lab/src@one --to file:/tmp/one.zfs
    same 600 "$(stat -c %a /tmp/one.zfs)" "mode"
    [ ! -e /tmp/one.zfs.partial ]
    refused "exists already" zgate snapshot send lab/src@one --to file:/tmp/one.zfs
    zgate snapshot send lab/src@two --from @one --to file:/tmp/two.zfs --json | tee /tmp/sent
    figure "incremental stream" "$(jq .bytes /tmp/sent)" bytes
    [ "$(jq .bytes /tmp/sent)" -lt 12000000 ]
    zfs receive -u copy/file </tmp/one.zfs
    zfs receive -u copy/file </tmp/two.zfs
    equal lab/src copy/file one
    equal lab/src copy/file two
}
file_cut_short() {
    # The place is full: what there is stays, under the other name.
    mkdir -p /tmp/small && mount -t tmpfs -o size=20m small /tmp/small
    local code=0
    zgate snapshot send lab/src@one --to file:/tmp/small/one.zfs || code=$?
    same 1 $code "exit code"
    [ ! -e /tmp/small/one.zfs ] && [ -s /tmp/small/one.zfs.partial ]
    umount /tmp/small
    # A sender that dies half-way.
    mkdir -p /tmp/dying
    cat >/tmp/dying/zfs <<'END'
#!/bin/bash
[ "$1 $2" = "send -Lc" ] || exec /usr/sbin/zfs "$@"
/usr/sbin/zfs "$@" 2>/dev/null | head -c 20000000
echo "the sender dies" >&2
exit 1
END
    chmod 755 /tmp/dying/zfs
    code=0
    PATH=/tmp/dying:$PATH zgate snapshot send lab/src@one --to file:/tmp/killed.zfs 2>/tmp/said || code=$?
    cat /tmp/said
    same 3 $code "exit code"
    [ ! -e /tmp/killed.zfs ]
    grep -q "killed.zfs.partial; it is not a complete stream" /tmp/said
    # The next one begins anew.
    zgate snapshot send lab/src@one --to file:/tmp/killed.zfs
    zfs receive -u copy/again </tmp/killed.zfs
    equal lab/src copy/again one
    rm /tmp/killed.zfs /tmp/one.zfs /tmp/two.zfs
}
over_ssh_interrupted() {
    echo 20000000 >/tmp/cut
    local code=0
    zgate snapshot send lab/src@one --to ssh:backup@there:copy/ssh --ssh /tmp/ssh 2>/tmp/said || code=$?
    cat /tmp/said
    same 3 $code "exit code"
    grep -q "resume with: zgate snapshot send --to ssh:backup@there:copy/ssh --resume" /tmp/said
    refused "no such\|does not exist\|could not find" zfs list copy/ssh@one
    : >/tmp/cut
    zgate snapshot send --to ssh:backup@there:copy/ssh --resume --ssh /tmp/ssh --json | tee /tmp/sent
    figure "rest after 20 MB of 50" "$(jq .bytes /tmp/sent)" bytes
    [ "$(jq .bytes /tmp/sent)" -lt 40000000 ] || fail "it began anew"
    equal lab/src copy/ssh one
    refused "nothing was interrupted there" zgate snapshot send --to ssh:backup@there:copy/ssh --resume --ssh /tmp/ssh
    zgate snapshot send lab/src@two --from '#mark' --to ssh:backup@there:copy/ssh --ssh /tmp/ssh
    equal lab/src copy/ssh two
    cat /tmp/ssh.log
    grep -qx "zfs receive -s -u copy/ssh" /tmp/ssh.log
}
token_by_hand() {
    echo 9000000 >/tmp/cut
    zgate snapshot send lab/src@one --to ssh:backup@there:copy/hand --ssh /tmp/ssh && fail "it worked"
    : >/tmp/cut
    local token
    token=$(zfs get -H -o value receive_resume_token copy/hand)
    zgate snapshot send --resume-token "$token" --to file:/tmp/rest.zfs
    zfs receive -s -u copy/hand </tmp/rest.zfs
    equal lab/src copy/hand one
    refused "is not a receive_resume_token" zgate snapshot send --resume-token 'x;y' --to local:copy/hand
}
replicated() {
    zfs create lab/src/below && echo below >"$STORE/src/below/file"
    zfs snapshot -r lab/src@three
    zgate snapshot send lab/src@three --replicate --to local:copy/all
    same 4 "$(zfs list -Hrt snapshot -o name copy/all | wc -l)" "snapshots"
    zfs snapshot -r lab/src@four && zfs snapshot -r lab/src@five
    zgate snapshot send lab/src@five --from @three --intermediates --replicate --to local:copy/all
    same 8 "$(zfs list -Hrt snapshot -o name copy/all | wc -l)" "snapshots"
    equal lab/src/below copy/all/below five
    # Somebody wrote there: refused, unless told to roll back.
    zfs set mountpoint=/scratch/copy-all copy/all && zfs mount copy/all || true
    echo local >/scratch/copy-all/mine
    zfs snapshot lab/src@six
    refused "modified" zgate snapshot send lab/src@six --from @five --to local:copy/all
    zgate snapshot send lab/src@six --from @five --to local:copy/all --rollback
    [ ! -e /scratch/copy-all/mine ]
}
own_snapshot_stays() {
    zfs snapshot copy/all@own && zfs snapshot lab/src@seven
    refused "copy/all@own.*copy/all@six.*destroyed" \
        zgate snapshot send lab/src@seven --from @six --to local:copy/all --rollback
    refused "cannot be used with" \
        zgate snapshot send lab/src@seven --from @six --replicate --to local:copy/all --rollback
    refused "required" zgate snapshot send lab/src@seven --to local:copy/all --rollback
    zfs list copy/all@own copy/all@six copy/all/below@five
}
raw() {
    head -c 32 /dev/urandom >/tmp/key
    zfs create -o encryption=on -o keyformat=raw -o keylocation=file:///tmp/key lab/secret
    echo secret-text >"$STORE/secret/file"
    zfs snapshot lab/secret@one
    zfs unmount lab/secret && zfs unload-key lab/secret
    refused "dataset key must be loaded\|key" zgate snapshot send lab/secret@one --to file:/tmp/plain.zfs
    zgate snapshot send lab/secret@one --raw --to file:/tmp/raw.zfs
    same 0 "$(grep -c secret-text /tmp/raw.zfs || true)" "plain text in the stream"
    zfs receive -u copy/secret </tmp/raw.zfs
    same unavailable "$(zfs get -H -o value keystatus copy/secret)" "key"
    zfs load-key -L file:///tmp/key copy/secret
    zfs set mountpoint=/scratch/copy-secret copy/secret
    # With its key it is mounted by that already.
    mountpoint -q /scratch/copy-secret || zfs mount copy/secret
    same secret-text "$(cat /scratch/copy-secret/file)" "content"
}

need "data and snapshots" make_data
step "to a file, full and incremental; received, both are equal" to_a_file
step "a file that is cut short is never taken for whole" file_cut_short
step "over ssh, interrupted, resumed, incremental from a bookmark" over_ssh_interrupted
step "resumed by hand with the token" token_by_hand
step "a tree with all its snapshots, then what came since" replicated
step "a snapshot that only the destination has stays, with --rollback too" own_snapshot_stays
step "raw: the copy stays encrypted, no key is needed" raw
