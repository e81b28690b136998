#!/usr/bin/env bash
# Trains on 2 nodes of 2 ranks on this machine, an agent beside each node, one rank or
# one node's wires slowed for real; then asks which node it was.
#
#   run.sh                     rank 3 (node-1) computes more in forward; exit code 3, node-1 is named
#   run.sh --fault dataloader  its loader waits for a slow disk
#   run.sh --fault checkpoint  its checkpoints are written more often
#   run.sh --fault link        3 nodes in network namespaces; from step 60 on node-1's wires carry
#                              16 MB/s (needs root, for ip and tc)
#   run.sh --healthy           nobody is slowed; exit code 0
#   run.sh […] --nodes 4       so many nodes of 2 ranks
#   run.sh […] -- …            what follows goes to train.py
#
# LAGGARD names the binary, PYTHON a Python with torch, OUT a folder for the results.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

fault=compute nodes=2
case ${1:-} in
--healthy) fault=none; shift ;;
--fault)
	fault=${2:-}
	shift $(($# < 2 ? $# : 2))
	;;
esac
case $fault in
none) work=() ;;
compute) work=(--slow-rank 3) ;;
dataloader) work=(--slow-rank 3 --slow-part load --workers 0) ;;
checkpoint) work=(--slow-rank 3 --slow-part save) ;;
link) work=(--pairs --steps 140) nodes=3 ;;
*)
	echo "run.sh: unknown fault '$fault': compute, dataloader, checkpoint or link" >&2
	exit 2
	;;
esac
if [ "${1:-}" = --nodes ]; then
	nodes=${2:-}
	shift $(($# < 2 ? $# : 2))
	if ! [ "$nodes" -ge 2 ] 2>/dev/null; then
		echo "run.sh: --nodes '$nodes': want 2 or more" >&2
		exit 2
	fi
fi
if [ "${1:-}" = -- ]; then shift; fi
if [ $# -gt 0 ]; then work+=("$@"); fi
world=$((2 * nodes))

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
pids=() spaces=()
cleanup() {
	if [ ${#pids[@]} -gt 0 ]; then kill "${pids[@]}" 2>/dev/null || true; fi
	for space in ${spaces[@]+"${spaces[@]}"}; do ip netns delete "$space" 2>/dev/null || true; done
	rm -rf "$rings"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# lay_network gives each node a network namespace with one wire to a switch.
lay_network() {
	local hub=laggard-$$-hub space
	ip netns add "$hub" && spaces+=("$hub")
	ip -n "$hub" link add switch type bridge
	ip -n "$hub" link set switch up
	for node in $(seq 0 $((nodes - 1))); do
		space=laggard-$$-$node
		ip netns add "$space" && spaces+=("$space")
		ip -n "$hub" link add "node-$node" type veth peer name eth0 netns "$space"
		ip -n "$hub" link set "node-$node" master switch up
		ip -n "$space" address add "10.0.0.$((10 + node))/24" dev eth0
		ip -n "$space" link set eth0 up
		ip -n "$space" link set lo up
	done
}

# slow_wires limits what node-1 sends and gets, once training has come to step 60.
slow_wires() {
	until grep -qs '^step 60,' "$out/rank-0.log"; do sleep 0.1; done
	tc -n "laggard-$$-1" qdisc add dev eth0 root tbf rate 128mbit burst 32kb latency 400ms
	tc -n "laggard-$$-hub" qdisc add dev node-1 root tbf rate 128mbit burst 32kb latency 400ms
	echo "run.sh: node-1's wires carry 16 MB/s from here on" >&2
}

"$laggard" install "$out/recorder" >&2

agents=()
for node in $(seq 0 $((nodes - 1))); do
	mkdir "$rings/node-$node"
	"$laggard" agent --ring-dir "$rings/node-$node" --dir "$out/profiling" --store "parquet:$out/store" \
		--node "node-$node" --listen 127.0.0.1:0 --metrics 127.0.0.1:0 --until-idle 5s \
		>"$out/agent-$node.log" 2>&1 &
	agents+=($!)
done
pids=("${agents[@]}")

port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
master=127.0.0.1
if [ $fault = link ]; then
	lay_network
	master=10.0.0.10
	export GLOO_SOCKET_IFNAME=eth0
	slow_wires &
	pids+=($!)
fi
ranks=()
for rank in $(seq 0 $((world - 1))); do
	place=()
	if [ $fault = link ]; then place=(ip netns exec "laggard-$$-$((rank / 2))"); fi
	PYTHONPATH="$out/recorder/python${PYTHONPATH:+:$PYTHONPATH}" LAGGARD_AUTO=1 LAGGARD_JOB=pytorch-example \
		LAGGARD_RUN="$rings/node-$((rank / 2))" NODE_NAME="node-$((rank / 2))" \
		RANK=$rank WORLD_SIZE=$world LOCAL_RANK=$((rank % 2)) MASTER_ADDR=$master MASTER_PORT="$port" \
		OMP_NUM_THREADS=1 ${place[@]+"${place[@]}"} "$python" "$here/train.py" --save-to "$out/checkpoints" ${work[@]+"${work[@]}"} \
		>"$out/rank-$rank.log" 2>&1 &
	ranks+=($!)
done
pids+=("${ranks[@]}")

code=0
for rank in $(seq 0 $((world - 1))); do
	wait "${ranks[$rank]}" || { code=1; echo "run.sh: rank $rank failed, see $out/rank-$rank.log" >&2; }
done
cat "$out/rank-0.log" >&2
if [ $code != 0 ]; then exit $code; fi # and the agents with it: they would wait for a trainer's rings
for node in $(seq 0 $((nodes - 1))); do
	wait "${agents[$node]}" || { code=1; echo "run.sh: agent of node-$node failed, see $out/agent-$node.log" >&2; }
done
pids=()
[ $code = 0 ] || exit $code

echo "store: $out/store" >&2
"$laggard" analyze "$out/store" || code=$?
exit $code
