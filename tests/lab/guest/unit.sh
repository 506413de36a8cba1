# The shipped unit and the shipped example, as deploy/ has them: a machine of the
# lab has no service manager, so their keys are read and applied here. What is
# not applied: the filter of system calls and the restrictions of the sandbox.
# shellcheck shell=bash

UNIT=/lab/deploy/systemd/zgate.service
EXAMPLE=/lab/deploy/zgate.example.toml
UNIT_CONFIG=/etc/zgate/zgate.toml

# unit_key KEY: its value in the unit; a unit without it is a failure.
unit_key() {
    local value
    value=$(sed -n "s/^$1=//p" "$UNIT")
    [ -n "$value" ] || { fail "the unit has no $1=" >&2; return 1; }
    echo "$value"
}

# unit_rights: CapabilityBoundingSet= as setpriv takes it.
unit_rights() {
    unit_key CapabilityBoundingSet | tr 'A-Z' 'a-z' | sed 's/^/-all /; s/ cap_/,+/g'
}
# unit_limits: Limit*= as prlimit takes them; LimitNICE=-20 is a limit of 40.
unit_limits() {
    local memlock
    memlock=$(unit_key LimitMEMLOCK)
    echo "--nofile=$(unit_key LimitNOFILE)" "--memlock=${memlock/infinity/unlimited}" \
        "--nice=$((20 - $(unit_key LimitNICE)))"
}

# unit_exec COMMAND…: with the identity, the rights and the limits of the unit, in the
# place of this shell: with `&` the process has the number that `$!` says.
unit_exec() {
    local limits
    read -ra limits <<<"$(unit_limits)"
    exec prlimit "${limits[@]}" setpriv --bounding-set "$(unit_rights)" --no-new-privs \
        env ZGATE_LOG=info NO_COLOR=1 "$@"
}

unit_run() { (unit_exec "$@"); }

# unit_install: program and directories where the unit has them.
unit_install() {
    install -m 755 "$ZGATE" /usr/local/bin/zgate
    install -d -m 755 /etc/zgate
    install -d -m "$(unit_key RuntimeDirectoryMode)" "/run/$(unit_key RuntimeDirectory)"
    install -d -m "$(unit_key StateDirectoryMode)" "/var/lib/$(unit_key StateDirectory)"
}

# unit_start: what ExecStartPre= and ExecStart= say, with $UNIT_CONFIG.
unit_start() {
    local check serve
    read -ra check <<<"$(unit_key ExecStartPre)"
    read -ra serve <<<"$(unit_key ExecStart)"
    unit_run "${check[@]}" || return 1
    unit_exec "${serve[@]}" >>/run/zgate/log 2>&1 </dev/null &
    echo $! >/run/zgate/pid
    eventually 30 port_open 2049 && gateway_alive || { tail -n 20 /run/zgate/log; return 1; }
}
