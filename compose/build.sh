#!/bin/sh
# Builds the images of the stack from this checkout, without a registry:
#   laxity:local          exporter, actuator and guardian
# with --sim also
#   laxity-simgpu:local   the simulated GPU
#   laxity-tenant:local   a CUDA matrix multiplication
# and with --prometheus, of the programs installed on this machine
#   laxity-prometheus:local, laxity-alertmanager:local
# Needs Go, a C compiler and Docker.
set -eu
cd "$(dirname "$0")/.."
export CGO_CFLAGS="${CGO_CFLAGS:--O2 -g -Wno-deprecated-declarations}"
context=${LAXITY_BUILD_DIR:-.cache/compose}
rm -rf "$context"
bin=$context/bin
mkdir -p "$bin"

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

# image NAME [DOCKERFILE LINES]: makes laxity-NAME:local of the root folder NAME.
image() {
	name=$1
	shift
	tag=laxity-$name:local
	[ "$name" != laxity ] || tag=laxity:local
	{ cat compose/Dockerfile; printf '%s\n' "$@"; } >"$context/$name.Dockerfile"
	docker build -q -t "$tag" -f "$context/$name.Dockerfile" "$context/$name"
}

# installed NAME...: the path of the first of these programs that there is.
installed() {
	for name in "$@"; do command -v "$name" && return; done
	echo "build.sh: install $1 first (Debian and Ubuntu: apt-get install prometheus prometheus-alertmanager)" >&2
	exit 1
}

# LAXITY_LDFLAGS writes the version into the programs; `make images` gives it.
go build -trimpath -ldflags "${LAXITY_LDFLAGS:-}" -o "$bin/" ./cmd/laxity-exporter ./cmd/laxity-actuator
root laxity "$bin/laxity-exporter" "$bin/laxity-actuator"
image laxity

for what in "$@"; do
	case $what in
	--sim)
		go build -trimpath -o "$bin/" ./compose/simgpu
		"$bin/simgpu" build "$context"
		root simgpu "$bin/simgpu"
		mkdir -p "$context/simgpu/usr/lib/laxity-sim"
		cp "$context/libcuda.so.1" "$context/simgpu/usr/lib/laxity-sim/"
		image simgpu
		root tenant "$context/matmul"
		image tenant
		;;
	--prometheus)
		# As in Prometheus's own images: user nobody, who owns the data.
		prometheus=$(installed prometheus) promtool=$(installed promtool)
		alertmanager=$(installed alertmanager prometheus-alertmanager) amtool=$(installed amtool)
		root prometheus "$prometheus" "$promtool"
		mkdir "$context/prometheus/empty"
		image prometheus 'COPY --chown=65534:65534 empty /prometheus' 'USER 65534:65534' 'ENTRYPOINT ["prometheus"]'
		cp "$alertmanager" "$bin/alertmanager"
		root alertmanager "$bin/alertmanager" "$amtool"
		mkdir "$context/alertmanager/empty"
		templates=/usr/share/prometheus/alertmanager # Debian's reads them from there
		[ ! -d $templates ] || { mkdir -p "$context/alertmanager$templates" && cp -r $templates/. "$context/alertmanager$templates/"; }
		image alertmanager 'COPY --chown=65534:65534 empty /alertmanager' 'USER 65534:65534' 'ENTRYPOINT ["alertmanager"]'
		;;
	*)
		echo "build.sh: $what? It takes --sim and --prometheus" >&2
		exit 2
		;;
	esac
done
