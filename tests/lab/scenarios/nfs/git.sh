# title: git works: commit, clone, gc, fsck
# seconds: 420
# ci: no

store_make "$(best_store)"
need "the gateway serves" gateway_start
export GIT_CONFIG_GLOBAL=/tmp/gitconfig
git config --global user.name Lab
git config --global user.email lab@example.org
git config --global init.defaultBranch main
git config --global safe.directory '*'
git config --global gc.auto 0

commit() {
    mkdir -p "$1/first" && cd "$1/first"
    git init -q
    for n in $(seq 30); do
        mkdir -p "dir$((n % 5))"
        seq "$n" $((n + 200)) >"dir$((n % 5))/file$n"
    done
    git add .
    git commit -qm one
    git mv dir1/file1 dir2/renamed
    echo change >>dir3/file3
    git commit -qam two
    same 2 "$(git log --oneline | wc -l)" commits
    same "" "$(git status --porcelain)" "status after commit"
}
clone() {
    cd "$1"
    git clone -q first second
    same "" "$(git -C second status --porcelain)" "status of the clone"
    same "$(git -C first rev-parse HEAD^{tree})" "$(git -C second rev-parse HEAD^{tree})" tree
}
check() {
    cd "$1/second"
    git gc -q
    git fsck --full --strict
    git checkout -q HEAD~1
    git switch -q main
    same "" "$(git status --porcelain)" "status after switches"
}

for version in 4.2 4.0 3; do
    dir=/mnt/v$version
    step "v$version mounts" client_mount "$version" "$dir" || continue
    step "v$version: init and commit" commit "$dir"
    step "v$version: clone" clone "$dir"
    drop_caches
    step "v$version: gc, fsck, switch" check "$dir"
    step "v$version: removed" rm -rf "$dir/first" "$dir/second"
    umount "$dir"
done
step "the gateway lives" gateway_alive
