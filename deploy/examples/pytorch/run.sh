#!/usr/bin/env bash
# Trains on 4 ranks in 2 nodes of this machine, an agent beside each node, one rank
# slowed by real extra work; then asks which node it was.
#
#   run.sh                     rank 3 (node-1) is slowed; exit code 3, node-1 is named
#   run.sh --healthy           nobody is slowed; exit code 0
#   run.sh [--healthy] -- …    what follows goes to train.py
#
# LAGGARD names the binary, PYTHON a Python with torch, OUT a folder for the results.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

work=(--slow-rank 3)
if [ "${1:-}" = --healthy ]; then work=(); shift; fi
if [ "${1:-}" = -- ]; then shift; fi
if [ $# -gt 0 ]; then work+=("$@"); fi

laggard=${LAGGARD:-}
if [ -z "$laggard" ]; then
	for candidate in "$here/../../../laggard" "$(command -v laggard || true)"; do
		if [ -x "$candidate" ]; then laggard=$candidate; break; fi
	done
fi
if [ -z "$laggard" ]; then
	echo "run.sh: no laggard binary: run 'make build' in the repository, or set LAGGARD" >&2
	exit 1
fi
laggard=$(realpath "$laggard")
python=${PYTHON:-}
for candidate in python3 /usr/bin/python3; do
	if [ -z "$python" ] && "$candidate" -c 'import torch.distributed' 2>/dev/null; then python=$candidate; fi
done
if [ -z "$python" ]; then
	echo "run.sh: no Python with torch: install python3-torch, or set PYTHON" >&2
	exit 1
fi

out=${OUT:-$(mktemp -d)}
mkdir -p "$out/checkpoints"
rings=$(mktemp -d /dev/shm/laggard-example.XXXXXX)
pids=()
cleanup() {
	if [ ${#pids[@]} -gt 0 ]; then kill "${pids[@]}" 2>/dev/null || true; fi
	rm -rf "$rings"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

"$laggard" install "$out/recorder" >&2

agents=()
for node in 0 1; do
	mkdir "$rings/node-$node"
	"$laggard" agent --ring-dir "$rings/node-$node" --dir "$out/profiling" --store "$out/store" \
		--node "node-$node" --listen 127.0.0.1:0 --metrics 127.0.0.1:0 --until-idle 5s \
		>"$out/agent-$node.log" 2>&1 &
	agents+=($!)
done
pids=("${agents[@]}")

port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
ranks=()
for rank in 0 1 2 3; do
	PYTHONPATH="$out/recorder/python${PYTHONPATH:+:$PYTHONPATH}" LAGGARD_AUTO=1 LAGGARD_JOB=pytorch-example \
		LAGGARD_RUN="$rings/node-$((rank / 2))" NODE_NAME="node-$((rank / 2))" \
		RANK=$rank WORLD_SIZE=4 LOCAL_RANK=$((rank % 2)) MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" \
		OMP_NUM_THREADS=1 "$python" "$here/train.py" --save-to "$out/checkpoints" ${work[@]+"${work[@]}"} \
		>"$out/rank-$rank.log" 2>&1 &
	ranks+=($!)
done
pids+=("${ranks[@]}")

code=0
for rank in 0 1 2 3; do
	wait "${ranks[$rank]}" || { code=1; echo "run.sh: rank $rank failed, see $out/rank-$rank.log" >&2; }
done
cat "$out/rank-0.log" >&2
for node in 0 1; do
	wait "${agents[$node]}" || { code=1; echo "run.sh: agent of node-$node failed, see $out/agent-$node.log" >&2; }
done
pids=()
[ $code = 0 ] || exit $code

echo "store: $out/store" >&2
"$laggard" analyze "$out/store" || code=$?
exit $code
