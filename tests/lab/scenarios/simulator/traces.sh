# title: the simulator's seeds have the same traces on this machine as on the one that started it
# seconds: 900
# ci: no

STEP_SECONDS=800
HERE=/lab/simulator/here.json
[ -f $HERE ] || skip "no simulator: run cargo xtask simulate --two-machines"
SIMULATOR=/run/lab/zgate-simulator
cp /lab/simulator/zgate-simulator $SIMULATOR && chmod 755 $SIMULATOR

# of FILE KEY: a number or a word of a campaign's result.
of() { sed -n "s/.*\"$2\":\"\{0,1\}\([0-9a-f]*\).*/\1/p" "$1"; }

seeds_of_the_other_machine() {
    $SIMULATOR --json --seed "$(of $HERE first)" --seeds "$(of $HERE seeds)" >"$RESULT/there.json"
    same "$(of $HERE seeds)" "$(of "$RESULT/there.json" seeds)" seeds
    same "$(of $HERE traces)" "$(of "$RESULT/there.json" traces)" "sum of the traces"
    [ -n "$(of $HERE traces)" ]
}
# The comparison is worth something only if other seeds have another sum.
other_seeds() {
    $SIMULATOR --json --seed $(($(of $HERE first) + 1)) --seeds "$(of $HERE seeds)" >"$RESULT/other.json"
    [ "$(of $HERE traces)" != "$(of "$RESULT/other.json" traces)" ]
}
step "the same seeds have the same traces" seeds_of_the_other_machine
step "other seeds have others" other_seeds
