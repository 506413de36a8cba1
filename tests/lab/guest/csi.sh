# What CSI scenarios have in common: a gateway with a parent for volumes, and the
# driver as controller and node.
# shellcheck shell=bash

. /lab/guest/iscsi.sh
CSI_SOCKET=/run/zgate/csi.sock
CSI_DIR=/run/csi
CSI_PLACE=lab:lab/k8s

# csi_program NAME: copies a program that `cargo xtask conformance csi` has built.
csi_program() {
    [ -f "/lab/csi/$1" ] || skip "no $1: run cargo xtask conformance csi first"
    cp "/lab/csi/$1" "/run/lab/$1" && chmod 755 "/run/lab/$1"
}

# csi_config: the configuration of the gateway. CSI_LISTEN: portals; ISCSI_LINES and
# CSI_CONFIG: further lines.
csi_config() {
    MORE_CONFIG="[iscsi]
listen = [${CSI_LISTEN:-\"0.0.0.0:3260\"}]
${ISCSI_LINES:-}

[[volumes.parent]]
dataset = \"lab/k8s\"
pseudo = \"/k8s\"
target = \"iqn.2026-11.io.zgate:k8s\"
thin = true
sources = [\"lab/models/*\"]
${CSI_CONFIG:-}"
}

# csi_start OPTION…: a gateway on a pool at $ADDRESS, and the driver with these options.
csi_start() {
    ADDRESS=${ADDRESS:-127.0.0.1}
    DRIVER_OPTIONS=("$@")
    store_make zfs
    [ "$STORE_KIND" = zfs ] || skip "this image has no ZFS"
    zfs create lab/k8s
    csi_config
    export_add /scratch /export
    need "the gateway serves" gateway_start
    need "the initiator runs" initiator_start
    mkdir -p "$CSI_DIR"
    printf '%s\n' 'owner = "lab"' '[[gateway]]' 'name = "lab"' 'url = "unix:/run/zgate/api.sock"' \
        "address = \"$ADDRESS\"" 'parents = ["lab/k8s"]' >"$CSI_DIR/csi.toml"
    driver_start
    need "the driver serves" eventually 30 driver_serves
}

driver_start() {
    ZGATE_LOG=info background "$ZGATE" csi --endpoint "$CSI_SOCKET" --controller "$CSI_DIR/csi.toml" \
        --node "$(hostname)" --address "$ADDRESS" --state-dir "$CSI_DIR/volumes" "${DRIVER_OPTIONS[@]}" \
        >>"$RESULT/csi.log" 2>&1
    DRIVER=$!
}
# The socket of a driver that has ended is there, and refuses connections: one that somebody
# listens at has the flag 00010000.
driver_serves() { grep -q " 00010000 .* $CSI_SOCKET\$" /proc/net/unix; }
driver_gone() { ! driver_serves; }

# sanity NAME OPTION…: csi-sanity with these options.
sanity() {
    local name=$1 skipped
    shift
    # The target of the expanded volume fits a small pool.
    /run/lab/csi-sanity --ginkgo.no-color --csi.endpoint="unix:$CSI_SOCKET" \
        --csi.mountdir="$CSI_DIR/mount" --csi.stagingdir="$CSI_DIR/staging" \
        --csi.testvolumesize=$((64 << 20)) --csi.testvolumeexpandsize=$((128 << 20)) \
        --csi.testvolumemutableparameters="$CSI_DIR/mutable.yaml" "$@" >"$RESULT/sanity-$name" 2>&1 ||
        {
            grep -A12 '\[FAIL\|\[PANICKED' "$RESULT/sanity-$name" | tail -60 || true
            tail -20 "$RESULT/csi.log"
            fail "see sanity-$name"
        }
    grep 'Passed' "$RESULT/sanity-$name"
    figure "$name: tests passed" "$(sed -n 's/.*-- \([0-9]*\) Passed.*/\1/p' "$RESULT/sanity-$name")" tests
    # One needs a limit on volumes of a node. It would also skip what a driver says it cannot do.
    skipped=$(sed -n 's/.*| \([0-9]*\) Skipped.*/\1/p' "$RESULT/sanity-$name")
    same 1 "$skipped" "tests skipped"
}

# Nothing of the driver's is left on either side.
csi_nothing_left() {
    same "lab/k8s" "$(zfs list -Hr -t all -o name lab/k8s | xargs)" datasets
    same 0 "$("$ZGATE" targets --json | jq length)" targets
    same 0 "$("$ZGATE" sessions --json | jq length)" sessions
    same 0 "$(grep -c "$CSI_DIR" /proc/mounts || true)" mounts
    same "" "$(ls -A "$CSI_DIR/volumes")" records
    same 0 "$(iscsiadm -m node 2>/dev/null | grep -c k8s || true)" "node records"
}
