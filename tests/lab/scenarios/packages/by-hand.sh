# title: INSTALL.md by hand, its own lines: install, serve, a drop-in, upgrade under a mount, remove
# seconds: 360
# ci: no
# The commands are read from the document. A person's part is done by programs that
# stand for an editor.

. /lab/guest/service.sh
STEP_SECONDS=150
CONFIG=/etc/zgate/zgate.toml
DOCUMENT=/lab/deploy/INSTALL.md
HAND=/tmp/hand
TREE=/tmp/tree

# block LINE: the fenced block of the document with this line.
block() {
    awk -v wanted="$1" '/^```/ { if (inside && index(text, wanted)) { printf "%s", text; exit }
            inside = !inside; text = ""; next }
        inside { text = text $0 "\n" }' $DOCUMENT
}
# typed LINE: runs the commands of that block; all output that it shows must come.
typed() {
    local line
    : >/tmp/said
    block "$1" >/tmp/block
    while read -r line <&3; do
        case $line in
            '# '*)
                line=${line#\# }
                echo "# $line"
                under_manager env -C $TREE PATH="$HAND:$PATH" SYSTEMD_EDITOR=$HAND/drop-in \
                    script -qec "$line" /dev/null </dev/null | tr -d '\r' | tee -a /tmp/said
                ;;
            *) [ "${2:-}" = input ] || grep -x -F "$line" /tmp/said ;;
        esac
    done 3</tmp/block
}

tree_made() {
    mkdir -p $HAND $TREE/target/dist /scratch/second
    ln -s /lab/deploy $TREE/deploy
    cp "$ZGATE" $TREE/target/dist/zgate
    export_add "$STORE" /export
    export_add /scratch/second /second
    MORE_CONFIG='[iscsi]
listen = ["0.0.0.0:3260"]

[[target]]
name = "iqn.2026-11.test:vm"

[[target.lun]]
number = 0
path = "/scratch/second/lun"
size = "16MiB"'
    mkdir -p /etc/zgate
    gateway_config
    mv $CONFIG /tmp/own.toml
    rm -r /etc/zgate
    printf '#!/bin/sh\nexec cp /tmp/own.toml "$1"\n' >$HAND/editor
    block 'systemctl edit zgate' | grep -v '^# ' >/tmp/drop-in.text
    [ "$(wc -l </tmp/drop-in.text)" -ge 4 ]
    # Behind the remark that says where. The file comes last, behind the number of a line.
    printf '#!/bin/sh\nfor file; do :; done\nexec sed -i "2r /tmp/drop-in.text" "$file"\n' >$HAND/drop-in
    chmod 755 $HAND/*
}
installed() {
    typed 'install -d -m 755 /etc/zgate'
    # This terminal does not know its size.
    grep -q '/export' /tmp/said || fail "status does not show the export"
    same active "$(under_manager systemctl is-active zgate)"
    same enabled "$(under_manager systemctl is-enabled zgate)"
    client_mount 4.2 /mnt/a
    echo text >/mnt/a/file
    same text "$(cat "$STORE/file")"
}
drop_in() {
    typed 'systemctl edit zgate' input
    same $((8 << 30)) "$(under_manager systemctl show --property=MemoryMax --value zgate)" MemoryMax
}
upgraded() {
    local before
    before=$(under_manager systemctl show --property=MainPID --value zgate)
    # Behind what the kernel maps.
    echo >>$TREE/target/dist/zgate
    typed 'zgate.new config check'
    [ "$before" != "$(under_manager systemctl show --property=MainPID --value zgate)" ] || fail "it was not restarted"
    cmp $TREE/target/dist/zgate /usr/local/bin/zgate
    echo more >>/mnt/a/file
    same "text more" "$(xargs <"$STORE/file")"
    umount /mnt/a
}
removed() {
    typed 'rm /etc/systemd/system/zgate.service'
    ! port_open 2049 || fail "something still serves"
    [ -z "$(ls -d /usr/local/bin/zgate* /etc/zgate /var/lib/zgate 2>/dev/null)" ] || fail "something is left"
    rm -rf /etc/systemd/system/zgate.service.d
}

store_make "$(best_store)"
need "a service manager" manager_start
need "a tree with a program, and a person's configuration" tree_made
need "install by hand: the check prints what the document says, the service serves" installed
step "a drop-in" drop_in
step "upgrade by hand under a mount" upgraded
step "remove by hand: nothing is left" removed
