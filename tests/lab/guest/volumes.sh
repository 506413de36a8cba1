# Volumes of pods, many at a time, as a kubelet and the sidecars ask for them.
# shellcheck shell=bash

# kubelet PROTOCOL WORK OPTION…: one work for all volumes of a protocol.
kubelet() {
    /run/lab/kubelet "$CSI_SOCKET" "$2" --protocol "$1" --count "$COUNT" --dir "$CSI_DIR/pods" \
        --place "$CSI_PLACE" "${@:3}"
}
# both WORK OPTION…: for both protocols at once; prints nothing. Back when both have ended,
# also if one of them fails.
both() {
    local nfs failed=0
    kubelet nfs "$@" >"$CSI_DIR/said-nfs" &
    nfs=$!
    kubelet iscsi "$@" >"$CSI_DIR/said-iscsi" || failed=1
    wait $nfs || failed=1
    cat "$CSI_DIR/said-nfs" "$CSI_DIR/said-iscsi" >>"$CSI_DIR/calls"
    [ "$failed" = 0 ] || fail "$1"
}

mounts_of_pods() { grep -c "$CSI_DIR/pods/$1-.*/target " /proc/mounts || true; }
disks_there() { find /sys/block -name 'sd*' | wc -l; }

# written TEXT: each volume has the file `data` with this text, on stable storage.
written() {
    printf '%s\0' "$CSI_DIR"/pods/vol-*/target |
        xargs -0 -P 8 -I{} sh -c "echo $1 >{}/data && sync {}/data"
    echo "$1" >"$CSI_DIR/last"
}
# wrong_in NAME TEXT: prints the number of volumes whose `data` is another.
wrong_in() {
    printf '%s\0' "$CSI_DIR"/pods/"$1"-*/target |
        xargs -0 -P 8 -I{} sh -c "timeout 120 grep -q -x $2 {}/data || echo {}" | tee -a /dev/stderr | wc -l
}
# alive TEXT: each volume has what was written last, and takes this text.
alive() {
    local all dead last
    last=$(cat "$CSI_DIR/last")
    all=("$CSI_DIR"/pods/vol-*/target)
    # A process that a dead disk keeps does not keep the pipe.
    dead=$(printf '%s\0' "${all[@]}" |
        xargs -0 -P 8 -I{} sh -c "timeout 240 sh -c \
            'grep -q -x $last {}/data && echo $1 >{}/data && sync {}/data' >/dev/null || echo {}" |
        tee -a /dev/stderr | wc -l)
    echo "$1" >"$CSI_DIR/last"
    figure "dead volumes of ${#all[@]}, $1" "$dead" volumes
    same 0 "$dead" "dead volumes"
}
