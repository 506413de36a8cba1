# title: sqlite, postgres and a git clone on a pair: a planned switch and a reset under them
# seconds: 10800
# machines: 2
# disk: shared
# ci: no

. /lab/guest/peer.sh
. /lab/guest/pair.sh
export RESULT
STEP_SECONDS=2400
PG=/usr/lib/postgresql/17/bin
trap 'applications_end; pair_ends; capture_stop' EXIT
need "the pair serves at A, with clients" pair_with_clients zgate

sqlite_starts() { rows_start sqlite /mnt/4.1/db; }
# rows_start KIND DATABASE
rows_start() {
    rm -f "/tmp/notes-$1"
    python3 /lab/guest/rows.py "$1" "$2" "/tmp/notes-$1" &
    echo $! >"/tmp/writer-$1"
    eventually 300 test -s "/tmp/notes-$1"
}

postgres_starts() {
    install -d -m 700 -o postgres -g postgres /mnt/4.2/pg
    install -d -m 777 /tmp/pg
    (cd /mnt/4.2/pg && as postgres $PG/initdb -D /mnt/4.2/pg -A trust --no-sync --no-locale -E UTF8)
    postgres_runs
    rows_start postgres /tmp/pg
}
postgres_process() { head -n 1 /mnt/4.2/pg/postmaster.pid; }
postgres_runs() {
    as postgres $PG/postgres -D /mnt/4.2/pg -c listen_addresses= -c unix_socket_directories=/tmp/pg \
        -c shared_buffers=16MB >>"$RESULT/postgres.log" 2>&1 &
    eventually 600 psql -X -h /tmp/pg -U postgres -c 'select 1' postgres
}
repository() {
    export GIT_CONFIG_GLOBAL=/tmp/gitconfig
    git config --global user.name Lab
    git config --global user.email lab@example.org
    git config --global init.defaultBranch main
    git init -q /tmp/first
    cd /tmp/first
    for n in $(seq 400); do
        mkdir -p "dir$((n % 20))"
        head -c 20000 /dev/urandom | base64 >"dir$((n % 20))/file$n"
    done
    git add .
    git commit -q -m one
}
# over NAME MOVE…: a clone that begins before the move and ends after it.
over() {
    local name=$1 began
    shift
    rm -f /tmp/cloned
    (code=0; git clone -q --no-local /tmp/first "/mnt/4.2/$name" || code=$?; echo $code >/tmp/cloned) &
    sleep 2
    began=$(now)
    "$@"
    eventually 600 test -s /tmp/cloned
    same 0 "$(cat /tmp/cloned)" "exit status of git clone"
    figure "$name: clone over it" "$(since "$began")" s
    git -C "/mnt/4.2/$name" fsck --full --strict
    same "" "$(git -C "/mnt/4.2/$name" status --porcelain)" "status of the clone"
    writer_goes_on sqlite 360
    writer_goes_on postgres 360
}
crashed() { power reset; pair_serves $NODE_A; }
whole() {
    for kind in sqlite postgres; do
        kill -TERM "$(cat /tmp/writer-$kind)"
        eventually 60 process_ended /tmp/writer-$kind
        figure "$kind: longest transaction" "$(longest $kind)" s
    done
    python3 /lab/guest/rows.py check-sqlite /mnt/4.1/db /tmp/notes-sqlite
    python3 /lab/guest/rows.py check-postgres /tmp/pg /tmp/notes-postgres
    # And from what is on the disk: it recovers from its log.
    postgres_process >/tmp/postgres
    kill -9 "$(cat /tmp/postgres)"
    eventually 60 process_ended /tmp/postgres
    eventually 60 none_left
    rm -f /mnt/4.2/pg/postmaster.pid
    postgres_runs
    python3 /lab/guest/rows.py check-postgres /tmp/pg /tmp/notes-postgres
}
none_left() { ! pgrep -x postgres; }
applications_end() { pkill -9 -x postgres; kill -9 "$(cat /tmp/writer-sqlite)" "$(cat /tmp/writer-postgres)"; }

need "sqlite writes" sqlite_starts
need "postgres writes" postgres_starts
need "a repository to clone" repository
step "a planned switch to B" over planned pair_move $NODE_B
step "a reset of B" over reset crashed
step "every committed row is there" whole
step "at no moment both had the pool" watched
