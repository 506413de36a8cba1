# title: a C source tree builds with make -j2
# seconds: 400
# ci: no

store_make "$(best_store)"
need "the gateway serves" gateway_start

sources() {
    mkdir -p "$1/tree/lib" && cd "$1/tree"
    for n in $(seq 16); do
        cat >"lib/part$n.c" <<END
#include <stdio.h>
#include "parts.h"
int part$n(int x) { printf("%d\n", x + $n); return x + $n; }
END
        echo "int part$n(int);" >>lib/parts.h
    done
    {
        echo '#include "lib/parts.h"'
        echo 'int main(void) { int x = 0;'
        for n in $(seq 16); do echo "x = part$n(x);"; done
        echo 'return x == 136 ? 0 : 1; }'
    } >main.c
    cat >Makefile <<'END'
OBJECTS := main.o $(patsubst %.c,%.o,$(wildcard lib/*.c))
CFLAGS := -O1 -MMD
program: libparts.a main.o
	$(CC) -o $@ main.o libparts.a
libparts.a: $(filter lib/%,$(OBJECTS))
	$(AR) rcs $@ $^
clean:
	rm -f $(OBJECTS) $(OBJECTS:.o=.d) libparts.a program
-include $(OBJECTS:.o=.d)
END
}
build() {
    cd "$1/tree"
    local began
    began=$(now)
    make -s -j2
    figure "v$2 make -j2" "$(since "$began")" s
    ./program >/tmp/said
    same 136 "$(tail -n 1 /tmp/said)" "the program's sum"
}
nothing_to_do() { cd "$1/tree" && make -q; }
one_changed() {
    cd "$1/tree"
    sleep 0.1
    touch lib/part7.c
    same 1 "$(make | grep -c 'part7\.c')" "files compiled again"
    ./program >/dev/null
}

for version in 4.2 3; do
    dir=/mnt/v$version
    step "v$version mounts" client_mount "$version" "$dir" || continue
    step "v$version: sources" sources "$dir"
    step "v$version: make -j2, run" build "$dir" "$version"
    step "v$version: nothing left to make" nothing_to_do "$dir"
    step "v$version: one file changed" one_changed "$dir"
    step "v$version: removed" rm -rf "$dir/tree"
    umount "$dir"
done
