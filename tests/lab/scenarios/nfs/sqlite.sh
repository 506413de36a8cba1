# title: sqlite keeps its locks, its transactions and its data
# seconds: 400
# ci: no

store_make "$(best_store)"
need "the gateway serves" gateway_start

load() {
    sqlite3 "$1/db" 'create table t(k integer primary key, v text)'
    local n
    {
        echo 'begin;'
        for n in $(seq 300); do echo "insert into t values($n, hex(randomblob(40)));"; done
        echo 'commit;'
    } | sqlite3 "$1/db"
    same 300 "$(sqlite3 "$1/db" 'select count(*) from t')" rows
    same ok "$(sqlite3 "$1/db" 'pragma integrity_check')" integrity
}
# $1 and $2 lead to the same file, from one machine or from two.
excluded() {
    python3 - "$1/db" "$2/db" <<'END'
import sqlite3, sys
one = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)
two = sqlite3.connect(sys.argv[2], timeout=0, isolation_level=None)
one.execute("begin immediate")
one.execute("insert into t values(1000, 'one')")
try:
    two.execute("begin immediate")
    raise SystemExit("two writers at once")
except sqlite3.OperationalError as error:
    assert "locked" in str(error), error
assert two.execute("select count(*) from t").fetchone()[0] == 300, "uncommitted rows are seen"
one.execute("commit")
assert two.execute("select v from t where k=1000").fetchone()[0] == "one", "committed row is not seen"
two.execute("begin immediate")
two.execute("delete from t where k=1000")
two.execute("commit")
assert one.execute("select count(*) from t").fetchone()[0] == 300
END
}
crowd() {
    python3 - "$1/db" "$2/db" <<'END'
import sqlite3, subprocess, sys
script = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
for n in range(15):
    db.execute("begin immediate")
    value = db.execute("select v from counter").fetchone()[0]
    db.execute("update counter set v=?", (value + 1,))
    db.execute("commit")
"""
db = sqlite3.connect(sys.argv[1])
db.execute("create table counter(v integer)")
db.execute("insert into counter values(0)")
db.commit()
db.close()
runs = [subprocess.Popen([sys.executable, "-c", script, path]) for path in sys.argv[1:3]]
assert all(run.wait() == 0 for run in runs), "a writer failed"
db = sqlite3.connect(sys.argv[1])
found = db.execute("select v from counter").fetchone()[0]
assert found == 30, f"{found} increments of 30 are there"
assert db.execute("pragma integrity_check").fetchone()[0] == "ok"
END
}

for version in 4.2 4.0; do
    dir=/mnt/v$version
    other=/mnt/b$version
    step "v$version mounts" client_mount "$version" "$dir" || continue
    step "v$version mounts on a second client" client_b_mount "$version" "$other" || continue
    step "v$version: tables, rows, integrity" load "$dir"
    step "v$version: two processes exclude each other" excluded "$dir" "$dir"
    step "v$version: two clients exclude each other" excluded "$dir" "$other"
    step "v$version: two clients count to 30" crowd "$dir" "$other"
    rm -f "$dir/db"
    umount "$dir" "$other"
done
step "the gateway lives" gateway_alive
