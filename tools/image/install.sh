#!/usr/bin/env bash
# Puts the program, the libraries that it needs, the shipped configs and the licences into a folder, which can then be
# moved or copied to another machine. Libraries keep their places to each other, by which they find one another.
#
# usage: install.sh PROGRAM LIBTORCH PREFIX [LIBRARY]
#
# Without LIBRARY the folder is for a CPU: only what the program is linked with is copied. LIBRARY, our kernels for CUDA, is
# put beside the program, and then all of libtorch and of CUDA's libraries is copied.
#
# PREFIX is a folder of its own: new, empty, or an earlier installation, which is replaced. Exit code 2: it is something else.
set -euo pipefail

if [[ -z $3 ]]; then
	echo "install.sh: PREFIX is empty, needed is a folder" >&2
	exit 2
fi
program=$1 torch=$(realpath "$2") prefix=$(realpath --canonicalize-missing "$3") library=${4-}
packages=$(dirname "$torch")

# What is replaced goes as whole folders, bin and lib among them: never those of a system.
if [[ -e $prefix && ! (-e $prefix/bin/mempo-train && -d $prefix/torch/lib) && (! -d $prefix || -n $(ls -A "$prefix")) ]]; then
	echo "install.sh: PREFIX is $prefix, which holds something else; allowed is a new or empty folder, or an earlier installation" >&2
	exit 2
fi

rm -rf "$prefix/bin" "$prefix/lib" "$prefix/torch" "$prefix/nvidia" "$prefix/configs" "$prefix/licenses"
mkdir -p "$prefix/bin" "$prefix/torch/lib" "$prefix/licenses"
strip -o "$prefix/bin/mempo-train" "$program"
ln -s torch/lib "$prefix/lib" # where the program looks first
cp -r configs "$prefix/configs"
find "$prefix/configs" -name '*.go' -delete
cp LICENSE "$prefix/licenses/"

linked() { # the libraries of a program that lie beside libtorch, relative to its parent folder
	ldd "$1" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | xargs realpath | sed -n "s|^$packages/||p"
}
everything() {
	(cd "$packages" && find torch/lib nvidia -name '*.so*' \( -type f -o -type l \))
}
if [[ -n $library ]]; then
	cp "$library" "$prefix/bin/"
	everything
else
	linked "$program"
fi | while read -r path; do
	mkdir -p "$prefix/$(dirname "$path")"
	cp -L "$packages/$path" "$prefix/$path"
	real=$(realpath "$packages/$path")
	echo "${real%/"$path"}" # the folder that the library was unpacked into, with the licences of its package
done | sort -u | while read -r folder; do
	(cd "$folder" && find . -path '*.dist-info/licenses/*' -type f -exec cp --parents {} "$prefix/licenses/" \;)
done
