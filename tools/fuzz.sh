#!/bin/sh
# Fuzzes one target, PACKAGE:FUNCTION, for a TIME; what go says goes into the file LOG. An input that fails is a failure. That the
# time was over is none: go sometimes ends with exit code 1 then (golang/go#75804).
set -eu

target=$1 time=$2 log=$3
status=0
# Shrinking each new input would take all of the time: ten tries must do.
go test -run '^$' -fuzz "^${target#*:}\$" -fuzztime "$time" -fuzzminimizetime 10x -parallel 1 "${target%%:*}" >"$log" 2>&1 || status=$?
if [ "$status" -ne 0 ] && { grep -q "Failing input" "$log" || ! grep -qx " *context deadline exceeded" "$log"; }; then
	cat "$log"
	exit 255 # which xargs stops at
fi
echo "ok   fuzz $target, $time"
