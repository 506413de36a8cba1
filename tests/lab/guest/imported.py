"""Whether two machines had one pool at once: imported.py FILE FILE, with lines
"TIME MACHINE imported" of looks that saw it. Between two such looks of one machine
that follow each other it had the pool."""
import sys

GAP_SECONDS = 5.0


def times(path):
    """The spans in which a machine certainly had the pool."""
    spans = []
    for line in open(path):
        at = float(line.split()[0])
        if spans and at - spans[-1][1] < GAP_SECONDS:
            spans[-1][1] = at
        else:
            spans.append([at, at])
    return spans


def main():
    one, other = (times(path) for path in sys.argv[1:])
    if not one or not other:
        raise SystemExit("one of the machines never had the pool: nothing was watched")
    for begin, end in one:
        for begin2, end2 in other:
            if begin <= end2 and begin2 <= end:
                raise SystemExit(f"both had the pool from {max(begin, begin2):.1f} to {min(end, end2):.1f}")
    print(f"had in turn: {len(one)} and {len(other)} times")


main()
