#!/bin/sh
# Tells how the runs of a container are: a line for each run folder that a process writes, with its last step. Exit code 1
# when one of them has written nothing for some time. It only reads what a run leaves in its folder.
#
# MEMPO_RUNS is the folder of run folders (default: runs), MEMPO_HEALTH_MINUTES the time (default: 60), which must be
# longer than the longest stage of a step and the longest evaluation.
set -eu

minutes=${MEMPO_HEALTH_MINUTES:-60}
list=$(find "${MEMPO_RUNS:-runs}" -maxdepth 3 -name lock -type f 2>/dev/null || true)
writing=0 silent=0
while IFS= read -r lock; do
	if [ -z "$lock" ] || flock --shared --nonblock "$lock" true; then
		continue # nobody holds it: no run, or one that has ended
	fi
	writing=$((writing + 1))
	run=$(dirname "$lock")
	step=$(tail -n 1 "$run/metrics.jsonl" 2>/dev/null | sed -nE 's/.*"step":([0-9]+).*/\1/p')
	state="is working"
	if [ -z "$(find "$run" -type f -mmin "-$minutes" -print -quit)" ]; then
		state="has written nothing for $minutes minutes" silent=$((silent + 1))
	fi
	echo "$run $state, last step: ${step:-none}"
done <<END
$list
END
[ "$writing" -gt 0 ] || echo "no run is at work"
[ "$silent" -eq 0 ]
