# Uses an image from within, as its user: what proof.py runs in the root of each target.
#
# usage: exercise.sh cpu|cuda
set -eu

fail() {
	echo "FAIL: $1" >&2
	exit 1
}
target=$1
export MEMPO_RUNS=runs

[ "$(id -u)" -ne 0 ] || fail "the user is root"
for tool in python3 python gcc g++ cc c++ ld make go nvcc pip; do
	! command -v "$tool" >/dev/null || fail "$tool is in the image"
done
[ -z "$(find / -xdev \( -name 'python3*' -o -name cc1plus -o -name 'libpython*' \) -type f 2>/dev/null)" ] || fail "there is a Python or a compiler"
! touch /opt/mempo-train/x 2>/dev/null || fail "the user may write beside the program"

mempo-train version --check --device cpu
mempo-health | grep -q "no run is at work" || fail "health without a run"
mempo-train world /opt/mempo-train/configs/world/world.toml >/dev/null
mempo-train check /opt/mempo-train/configs/world/sft.toml >/dev/null
mempo-train sft /opt/mempo-train/configs/world/sft.toml --set run.steps=20 --set sft.eval_every=0
mempo-train check /opt/mempo-train/configs/world/mempo.toml | tail -n 3
mempo-train /opt/mempo-train/configs/world/mempo.toml --set run.steps=2 --set eval.every=0 --set rollout.group_size=4 &
run=$!
for _ in $(seq 600); do
	mempo-health | grep "runs/world/mempo is working" && break
	sleep 0.1
done
mempo-health | grep -q "runs/world/mempo is working" || fail "health of a run"
wait "$run"
mempo-health | grep -q "no run is at work" || fail "health after the run"
test -s runs/world/mempo/metrics.jsonl -a -s runs/world/mempo/report.html || fail "the run has left no figures"

missing=$(find /opt/mempo-train/torch/lib -name 'libtorch_c*.so' -exec ldd {} + | grep "not found" | sort -u || true)
echo "libraries not found:" ${missing:-none}
code=0
said=$(mempo-train version --check --device cuda 2>&1 >/dev/null) || code=$?
echo "--device cuda: exit code $code: $said"
[ "$code" -eq 3 ] || fail "--device cuda without a GPU ended with exit code $code, want 3"
if [ "$target" = cuda ]; then
	others=$(echo "$missing" | grep -v "libcuda.so.1" || true)
	[ -z "$others" ] || fail "libraries are missing beside the driver's: $others"
fi
