#!/usr/bin/env bash
# Checks a GPU with the prebuilt bundle of `make gpu-bundle`: every kernel against its CPU form, golden numbers, decoding
# against scoring, the quickstart's training, and the speed of a model of 7 billion parameters. Takes under eight minutes.
# Needed are python3 and the libraries of torch 2.11: those of python3's own torch, or of the folder that LIBTORCH names;
# not Go, no network.
#
# usage: check_gpu.sh [--device cuda|cuda:N|cpu]
#
# Prints a table in Markdown. The table, the same as JSON (check_gpu.json) and the logs are left in the folder that OUT
# names (default: the bundle's folder results), the first two anew after each part. On cpu all parts run on small shapes.
# Exit code 0: all passed, 1: a check failed, 2: wrong usage, 3: there is no GPU, no libtorch, or a folder
# cannot be written, 130: interrupted.
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
[[ -x $bundle/bin/mempo-train ]] || bundle=$here/../../build/gpu
if [[ ! -x $bundle/bin/mempo-train ]]; then
	echo "check_gpu.sh: $bundle/bin/mempo-train is missing; make gpu-bundle builds it" >&2
	exit 3
fi
bundle=$(cd "$bundle" && pwd)
if ! touch "$bundle/.writable" 2>/dev/null; then
	echo "check_gpu.sh: the bundle's folder $bundle cannot be written; copy it to one that can" >&2
	exit 3
fi
rm "$bundle/.writable"

# The programs look for libraries in ../lib first, then where they were linked. Libraries of CUDA lie where libtorch's own
# search path points from there, which is in the folder nvidia beside the folder torch.
find_torch="import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
torch=${LIBTORCH-$(python3 -c "$find_torch")}
rm -rf "$bundle/lib" "$bundle/torch" "$bundle/nvidia"
if [[ -n $torch ]]; then
	if [[ ! -e $torch/lib/libtorch_cpu.so ]]; then
		echo "check_gpu.sh: $torch is no libtorch: it has no lib/libtorch_cpu.so" >&2
		exit 3
	fi
	torch=$(cd "$torch" && pwd)
	mkdir -p "$bundle/torch/lib"
	ln -s "$torch"/lib/* "$bundle/torch/lib/"
	ln -s "$(dirname "$torch")/nvidia" "$bundle/nvidia"
	ln -s torch/lib "$bundle/lib"
fi

exec python3 "$here/check_gpu.py" --bundle "$bundle" --device "$device" --out "${OUT:-$bundle/results}"
