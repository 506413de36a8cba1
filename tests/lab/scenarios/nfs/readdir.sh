# title: a directory of 3000 files is listed whole, while it changes too
# seconds: 300
# ci: no

FILES=3000
store_make "$(best_store)"
mkdir "$STORE/many"
(cd "$STORE/many" && seq -f 'file-%05g' $FILES | xargs touch)
need "the gateway serves" gateway_start

listed() {
    local began
    began=$(now)
    same $FILES "$(ls -f "$1/many" | grep -c '^file-')" "names"
    figure "v$2 names" "$(since "$began")" s
    same $FILES "$(ls -f "$1/many" | sort -u | grep -c '^file-')" "different names"
    drop_caches
    began=$(now)
    # Not `ls -l`: that asks for each file's ACL as well, one call per file.
    same $FILES "$(find "$1/many" -name 'file-*' -printf '%i %s %T@\n' | sort -u | wc -l)" "with attributes"
    figure "v$2 names and attributes" "$(since "$began")" s
}
while_changing() {
    python3 - "$1/many" "$2/many" $FILES <<'END'
import os, sys
a, b, files = sys.argv[1], sys.argv[2], int(sys.argv[3])
fixed = {f"file-{n:05}" for n in range(1, files + 1)}
seen = []
with os.scandir(a) as entries:
    for count, entry in enumerate(entries):
        seen.append(entry.name)
        if count % 100 == 0:
            name = f"{b}/passing-{count}"
            open(name, "w").close()
            if count % 200 == 0:
                os.unlink(name)
names = [name for name in seen if name in fixed]
assert len(names) == len(set(names)), "names twice"
assert set(names) == fixed, f"{len(fixed - set(names))} names missing"
END
    rm -f "$1"/many/passing-*
}
removed() {
    mkdir "$1/copy"
    (cd "$1/copy" && seq 600 | xargs touch)
    rm -rf "$1/copy"
    refused "No such file" ls "$1/copy"
}

for version in 4.2 4.0 3; do
    dir=/mnt/v$version
    step "v$version mounts" client_mount "$version" "$dir" || continue
    client_b_mount "$version" /mnt/b
    drop_caches
    step "v$version: $FILES files" listed "$dir" "$version"
    drop_caches
    step "v$version: listed while another client changes it" while_changing "$dir" /mnt/b
    step "v$version: 600 files, rm -r" removed "$dir"
    umount /mnt/b "$dir"
done
