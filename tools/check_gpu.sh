#!/usr/bin/env bash
# Checks a GPU with the prebuilt bundle of `make gpu-bundle`: golden numbers, decoding against scoring, a short run against
# the same on the CPU, speed and memory. Takes under five minutes. Needed are python3 and the libraries of torch 2.11:
# those of python3's own torch, or of the folder that LIBTORCH names; not Go.
#
# usage: check_gpu.sh [--device cuda|cuda:N|cpu]
#
# Prints a table in Markdown; where OUT names a folder, the table and the logs go there too. Exit code 0: all passed,
# 1: a check failed, 2: wrong usage, 3: there is no GPU or no libtorch.
set -euo pipefail

device=cuda
if [[ ${1-} == --device && $# == 2 ]]; then
	device=$2
elif (($#)); then
	echo "usage: check_gpu.sh [--device cuda|cuda:N|cpu]" >&2
	exit 2
fi

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bundle=$here
[[ -x $bundle/bin/mempo-train ]] || bundle=$here/../build/gpu
if [[ ! -x $bundle/bin/mempo-train ]]; then
	echo "check_gpu.sh: $bundle/bin/mempo-train is missing; make gpu-bundle builds it" >&2
	exit 3
fi
bundle=$(cd "$bundle" && pwd)

# The programs look for libraries in ../lib first, then where they were linked. CUDA's libraries lie where libtorch's own
# search path points from there.
find_torch="import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
torch=${LIBTORCH-$(python3 -c "$find_torch")}
rm -f "$bundle/lib"
if [[ -n $torch ]]; then
	if [[ ! -e $torch/lib/libtorch_cpu.so ]]; then
		echo "check_gpu.sh: $torch is no libtorch: it has no lib/libtorch_cpu.so" >&2
		exit 3
	fi
	ln -s "$(cd "$torch" && pwd)/lib" "$bundle/lib"
fi

exec python3 "$here/check_gpu.py" --bundle "$bundle" --device "$device"
