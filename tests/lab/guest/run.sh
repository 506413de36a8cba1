#!/bin/bash
# Runs one scenario: run.sh FILE RESULT-DIRECTORY
set -u
SCENARIO=$1
RESULT=${2:-/tmp/result}
mkdir -p "$RESULT"
. /lab/guest/lib.sh
trap 'gateway_figures; gateway_logs; capture_stop' EXIT
[ ! -e /lab/capture ] || capture_start
. "$SCENARIO"
conclude
