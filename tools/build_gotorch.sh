#!/usr/bin/env bash
# Compiles the C++ half of gotorch into OUT/libcgotorch.a.
#
#   build_gotorch.sh MODULE OUT COMPILER FLAGS...
#
# Its own build script cannot be used: the module cache is read-only, and it fetches an old libtorch.
set -euo pipefail
module=$1 out=$2
shift 2
go mod download "$module"
source=$(go list -m -f '{{.Dir}}' "$module")
mkdir -p "$(dirname "$out")"
work=$(mktemp -d "$out.XXXXXX")
trap 'rm -rf "$work"' EXIT
# Its files include each other as cgotorch/NAME.h.
cp -r "$source/cgotorch" "$work/cgotorch"
chmod -R u+w "$work"
echo "compiling the C++ half of gotorch" >&2
find "$work/cgotorch" -name '*.cc' -print0 | xargs -0 -P "$(nproc)" -I{} "$@" -I"$work" -c {} -o {}.o
mkdir "$work/lib"
ar rcs "$work/lib/libcgotorch.a" "$work"/cgotorch/*.o
# Where another checkout was faster, its result stays.
mv -T "$work/lib" "$out" 2>/dev/null || test -e "$out/libcgotorch.a"
