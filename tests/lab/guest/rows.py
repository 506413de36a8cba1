"""Writers with a database: rows.py sqlite FILE NOTES and rows.py postgres SOCKETS NOTES
insert numbered rows, each in a transaction, and note the number of those that were
committed, until SIGTERM; the first error ends them. rows.py check-sqlite FILE NOTES and
check-postgres: every noted row is there, and the database is whole."""
import os
import signal
import sqlite3
import subprocess
import sys
import time

how, database, notes = sys.argv[1:]
PAUSE_SECONDS = 0.5
go_on = True


def stop(*_):
    global go_on
    go_on = False


def sqlite():
    # The usual journal, which fsyncs at each commit.
    return sqlite3.connect(database, timeout=600, isolation_level=None)


def psql(*arguments):
    command = ["psql", "-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1", "-h", database, "-U", "postgres"]
    return [*command, *arguments, "postgres"]


def write(insert):
    signal.signal(signal.SIGTERM, stop)
    noted = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    n, longest = 0, 0.0
    while go_on:
        began = time.time()
        insert(n)
        longest = max(longest, time.time() - began)
        n += 1
        os.pwrite(noted, b"%d %.2f\n" % (n, longest), 0)
        time.sleep(PAUSE_SECONDS)


def write_sqlite():
    db = sqlite()
    db.execute("create table if not exists t(k integer primary key, v text)")
    write(lambda n: db.execute("insert into t values(?, hex(randomblob(100)))", (n,)))


def write_postgres():
    session = subprocess.Popen(psql(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def statement(text):
        session.stdin.write(text + "; select 'done';\n")
        session.stdin.flush()
        if session.stdout.readline() != "done\n":
            raise SystemExit(f"postgres ended: {text}")

    statement("create table t(k integer primary key, v text)")
    write(lambda n: statement(f"insert into t values({n}, repeat('x', 200))"))


def check(count, whole):
    least = int(open(notes).read().split()[0])
    if count < least or least < 5:
        raise SystemExit(f"{count} rows of {least} that were committed")
    if whole != "ok":
        raise SystemExit(f"integrity: {whole}")
    print(count, "rows")


def check_sqlite():
    db = sqlite()
    check(db.execute("select count(*) from t").fetchone()[0], db.execute("pragma integrity_check").fetchone()[0])


def check_postgres():
    rows = "select count(*) from t where v = repeat('x', 200)"
    check(int(subprocess.check_output(psql("-c", rows), text=True)), "ok")


{"sqlite": write_sqlite, "postgres": write_postgres, "check-sqlite": check_sqlite, "check-postgres": check_postgres}[how]()
