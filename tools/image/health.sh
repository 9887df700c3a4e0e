#!/bin/sh
# Tells how the runs of a container are: a line for each run folder that a process writes, with its last step. Exit code 1
# when one of them has written nothing for some time. It only reads what a run leaves in its folder.
#
# MEMPO_RUNS is the folder of run folders (default: runs), MEMPO_HEALTH_MINUTES the time (default: 60), which must be
# longer than the longest stage of a step and the longest evaluation.
set -eu

minutes=${MEMPO_HEALTH_MINUTES:-60} runs=${MEMPO_RUNS:-runs}

# The last step that a file of metrics names. Its end is enough: no line is longer.
last_step() {
	[ -f "$1" ] || return 0
	timeout 5 tail -c 1048576 "$1" 2>/dev/null | tail -n 1 | sed -nE 's/.*"step":([0-9]+).*/\1/p'
}

writing=0 silent=0
for lock in "$runs"/lock "$runs"/*/lock "$runs"/*/*/lock; do
	# A pipe would be waited for.
	if [ ! -f "$lock" ] || [ -L "$lock" ] || flock --shared --nonblock "$lock" true; then
		continue # nobody holds it: no run, or one that has ended
	fi
	writing=$((writing + 1))
	run=${lock%/lock}
	step=$(last_step "$run/metrics.jsonl")
	state="is working"
	if [ -z "$(find "$run" -type f -mmin "-$minutes" -print -quit)" ]; then
		state="has written nothing for $minutes minutes" silent=$((silent + 1))
	fi
	# A line stays one, whatever the folder is called.
	printf '%s %s, last step: %s\n' "$(printf %s "$run" | tr '[:cntrl:]' '?')" "$state" "${step:-none}"
done
[ "$writing" -gt 0 ] || echo "no run is at work"
[ "$silent" -eq 0 ]
