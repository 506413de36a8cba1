"""Every record that writer.py noted is in its file: records.py NOTES FILE [LEAST]"""
import sys

noted = int(open(sys.argv[1]).read().split()[0])
least = int(sys.argv[3]) if len(sys.argv) > 3 else 5
data = open(sys.argv[2], "rb").read()
for n in range(noted):
    record = data[n * 4096 : (n + 1) * 4096]
    if record != b"%08d:" % n + bytes([65 + n % 26]) * 4086 + b"\n":
        raise SystemExit(f"record {n} of {noted} is lost: {record[:40]!r}")
if noted < least:
    raise SystemExit(f"only {noted} records")
print(noted, "records")
