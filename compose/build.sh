#!/bin/sh
# Builds the images of the stack from this checkout, without a registry:
#   laxity:local          exporter, actuator and guardian
#   laxity-simgpu:local   the simulated GPU, with --sim
#   laxity-tenant:local   a CUDA matrix multiplication, with --sim
# Needs Go, a C compiler and Docker.
set -eu
cd "$(dirname "$0")/.."
export CGO_CFLAGS="${CGO_CFLAGS:--O2 -g -Wno-deprecated-declarations}"
context=.cache/compose
rm -rf "$context"

# root NAME PROGRAM...: a root folder with the programs and their libraries.
root() {
	dir=$context/$1
	shift
	mkdir -p "$dir/usr/bin" "$dir/etc" "$dir/tmp" "$dir/run"
	for program in "$@"; do
		cp "$program" "$dir/usr/bin/"
		# A static program has none.
		for lib in $(ldd "$program" 2>/dev/null | grep -o '/[^ ]*' || true); do
			libs=$lib
			case $lib in
			# What NVIDIA's libraries need, which the container toolkit mounts.
			*/libc.so.6) for more in libm.so.6 libdl.so.2 libpthread.so.0 librt.so.1; do libs="$libs ${lib%/*}/$more"; done ;;
			esac
			for lib in $libs; do
				[ ! -e "$lib" ] || { mkdir -p "$dir${lib%/*}" && cp -L "$lib" "$dir$lib"; }
			done
		done
	done
}

bin=$context/bin
mkdir -p "$bin"
go build -trimpath -o "$bin/" ./cmd/laxity-exporter ./cmd/laxity-actuator
root laxity "$bin/laxity-exporter" "$bin/laxity-actuator"
docker build -q -t laxity:local -f compose/Dockerfile "$context/laxity"

[ "${1:-}" = --sim ] || exit 0
go build -trimpath -o "$bin/" ./compose/simgpu
"$bin/simgpu" build "$context"
root simgpu "$bin/simgpu"
mkdir -p "$context/simgpu/usr/lib/laxity-sim"
cp "$context/libcuda.so.1" "$context/simgpu/usr/lib/laxity-sim/"
docker build -q -t laxity-simgpu:local -f compose/Dockerfile "$context/simgpu"
root tenant "$context/matmul"
docker build -q -t laxity-tenant:local -f compose/Dockerfile "$context/tenant"
