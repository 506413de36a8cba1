# title: the Debian package: install, serve, upgrade under a writer, remove, purge
# seconds: 540
# ci: no
# Three packages are in the machine: the second has the program of the first, that
# of the third differs. The unit runs under systemd, with all of its sandbox.

. /lab/guest/service.sh
CONFIG=/etc/zgate/zgate.toml
ZEDLET=/etc/zfs/zed.d/history_event-zgate.sh
package() { ls /lab/packages/zgate_*-"$1"_*.deb; }
# Of zgate, and of the second gateway.
main_pids() { under_manager systemctl show --property=MainPID --value zgate zgate@two | xargs; }
# dpkg_run ARGUMENTS…: a question on the terminal would be a failure.
dpkg_run() { under_manager env DEBIAN_FRONTEND=noninteractive dpkg "$@" </dev/null; }

installed() {
    dpkg_run -i "$(package 1)"
    same 755 "$(stat -c %a /usr/bin/zgate)" "mode of the program"
    same 644 "$(stat -c %a $CONFIG)" "mode of the configuration"
    same 755 "$(stat -c %a $ZEDLET)" "mode of the script for zed"
    same 700 "$(stat -c %a /var/lib/zgate)" "mode of the state"
    cmp $CONFIG /lab/deploy/zgate.example.toml
    # Nothing serves before somebody has configured it.
    refused "^disabled" under_manager systemctl is-enabled zgate
    refused "^inactive" under_manager systemctl is-active zgate
    bash -c '. /usr/share/bash-completion/completions/zgate && complete -p zgate'
}
serves() {
    gateway_config
    under_manager zgate config check
    under_manager systemctl disable --now nfs-server
    under_manager systemctl enable --now zgate
    under_manager systemctl is-active zgate
    under_manager zgate status
    mkdir -p /scratch/two
    sed -e 's/0:2049/0:2050/; s/127.0.0.1:9469/127.0.0.1:9470/; s#admin\.sock#two.sock#' \
        -e "s#$STORE#/scratch/two#; s#/var/lib/zgate#&/two#" \
        -e '/^state_dir/a conf_dir = "/etc/zgate/two.d"' $CONFIG >/etc/zgate/two.toml
    under_manager systemctl start zgate@two
    under_manager zgate status --socket /run/zgate/two.sock
}
# Their sockets lie in one directory.
restarted_alone() {
    under_manager systemctl restart zgate
    under_manager zgate status
    under_manager zgate status --socket /run/zgate/two.sock
    under_manager systemctl stop zgate
    under_manager zgate status --socket /run/zgate/two.sock
    under_manager systemctl start zgate
}
mounted() {
    client_mount 4.2 /mnt/a
    echo text >/mnt/a/file
    same text "$(cat "$STORE/file")"
}
# upgraded REVISION SECONDS: while a writer runs; every record it noted is there.
upgraded() {
    python3 /lab/guest/writer.py /mnt/a/written /tmp/notes "$2" &
    local writer=$!
    sleep 3
    dpkg_run -i "$(package "$1")"
    wait $writer || fail "the writer failed"
    figure "revision $1: longest fsync across the upgrade" "$(cut -d' ' -f2 /tmp/notes)" s
    python3 - "$STORE/written" <<'END'
import sys
noted = int(open("/tmp/notes").read().split()[0])
data = open(sys.argv[1], "rb").read()
for n in range(noted):
    assert data[n * 4096:n * 4096 + 9] == b"%08d:" % n, f"record {n} of {noted} is lost"
assert noted > 10, f"only {noted} records"
END
    under_manager systemctl is-active zgate
    same text "$(cat /mnt/a/file)"
}
same_program() {
    local before
    before=$(main_pids)
    upgraded 2 10
    same "$before" "$(main_pids)" "the processes"
}
new_program() {
    local before
    before=$(main_pids)
    cp $CONFIG /tmp/configured
    upgraded 3 40
    local now
    now=$(main_pids)
    [ "${before% *}" != "${now% *}" ] || fail "the earlier program still runs"
    [ "${before#* }" != "${now#* }" ] || fail "the earlier program still runs as the second gateway"
    under_manager systemctl is-active zgate@two
    cmp $CONFIG /tmp/configured
}
invalid_configuration() {
    local before
    before=$(main_pids)
    echo 'nonsense = 1' >>$CONFIG
    dpkg_run -i "$(package 1)"
    # The configuration of the second one is valid.
    same "${before% *}" "$(main_pids | cut -d' ' -f1)" "the process"
    [ "${before#* }" != "$(main_pids | cut -d' ' -f2)" ] || fail "the second gateway was not restarted"
    echo more >>/mnt/a/file
    cp /tmp/configured $CONFIG
}
removed() {
    umount /mnt/a
    dpkg_run -r zgate
    refused "^inactive" under_manager systemctl is-active zgate zgate@two
    ! port_open 2049 || fail "something still serves"
    ! port_open 2050 || fail "the second gateway still serves"
    [ ! -e /usr/bin/zgate ] || fail "the program is still there"
    cmp $CONFIG /tmp/configured
    ls /var/lib/zgate/*
}
again() {
    dpkg_run -i "$(package 3)"
    under_manager systemctl is-enabled zgate
    under_manager systemctl start zgate
    client_mount 4.2 /mnt/a
    same "text more" "$(xargs </mnt/a/file)"
    umount /mnt/a
}
purged() {
    echo secret >/etc/zgate/own.secret
    dpkg_run --purge zgate
    [ ! -e $CONFIG ] || fail "the configuration is still there"
    [ ! -e $ZEDLET ] || fail "the script for zed is still there"
    [ ! -e /var/lib/zgate ] || fail "the state is still there"
    test -e /etc/zgate/own.secret
    rm -r /etc/zgate
    [ -z "$(find /etc/systemd -name 'zgate*')" ] || fail "the unit is still enabled"
    ! port_open 2049 || fail "something still serves"
}

store_make "$(best_store)"
need "a service manager" manager_start
need "install: nothing is started" installed
need "the service is enabled, and serves" serves
step "a restart and a stop leave the second gateway its socket" restarted_alone
need "a client mounts and writes" mounted
STEP_SECONDS=150
step "an upgrade with the same program restarts nothing" same_program
step "an upgrade under a writer: no error, the configuration stays" new_program
step "a configuration that is not valid: the earlier program runs on" invalid_configuration
under_manager journalctl --no-pager --unit zgate >"$RESULT/journal" || true
step "remove: configuration and state stay" removed
step "install again: enabled as before, the client's file is there" again
step "purge: only what others have written stays" purged
