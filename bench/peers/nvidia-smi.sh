#!/bin/sh
# Answers as nvidia-smi does, with a page that never changes, for a machine without a GPU. The folder
# beside it holds what processes it lists: "apps".
fields="timestamp driver_version count name uuid pci.bus_id pstate fan.speed memory.total memory.used memory.free
utilization.gpu utilization.memory temperature.gpu temperature.memory power.draw power.limit clocks.sm clocks.mem
clocks.max.sm ecc.errors.corrected.volatile.total ecc.errors.uncorrected.volatile.total"
case $1 in
--help-query-gpu)
	for f in $fields; do printf '"%s"\nA property.\n\n' "$f"; done ;;
--query-compute-apps=*)
	echo 'gpu_uuid, pid, process_name, used_gpu_memory [MiB]'
	[ -f "${0%/*}/apps" ] && exec cat "${0%/*}/apps" ;;
--query-gpu=*)
	asked=${1#*=} heads= values= IFS=,
	for f in $asked; do
		case $f in
		timestamp) v='2026/01/02 03:04:05.678' ;;
		driver_version) v=580.95.05 ;;
		count) v=1 ;;
		name) v='NVIDIA H200' ;;
		uuid) v=GPU-11111111-2222-3333-4444-555555555555 ;;
		pci.bus_id) v=00000000:04:00.0 ;;
		pstate) v=P0 ;;
		memory.total) f="$f [MiB]" v='143771 MiB' ;;
		memory.used) f="$f [MiB]" v='51200 MiB' ;;
		memory.free) f="$f [MiB]" v='92571 MiB' ;;
		utilization.*) f="$f [%]" v='97 %' ;;
		temperature.*) v=43 ;;
		power.*) f="$f [W]" v='412.50 W' ;;
		clocks.*) f="$f [MHz]" v='1980 MHz' ;;
		ecc.*) v=0 ;;
		*) v='[N/A]' ;;
		esac
		heads="$heads, $f" values="$values, $v"
	done
	printf '%s\n%s\n' "${heads#, }" "${values#, }" ;;
*)
	echo "not answered here: $*" >&2
	exit 1 ;;
esac
