#!/bin/sh
# Builds the images of the stack from this checkout, without a registry, finds what this
# machine's kernel, Docker and Compose need, and writes it into .env beside this file:
#
#   build.sh           for this machine's NVIDIA GPU
#   build.sh --sim     for a simulated GPU, with three containers that compute on it
#
# With --images it only builds the images: .env, if there is one, stays as it is.
# With --prometheus, too, Prometheus and Alertmanager are those that are installed on this
# machine; otherwise Docker pulls their images. What you write into .env yourself stays.
# Needs Go, a C compiler, Docker, and Compose 2 or docker-compose 1.29.
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

engine=$(docker version --format '{{.Server.Version}} {{.Server.KernelVersion}}') || {
	echo "build.sh: no Docker engine answers (docker version says why)" >&2
	exit 1
}

# LAXITY_LDFLAGS writes the version into the programs; `make images` gives it.
go build -trimpath -ldflags "${LAXITY_LDFLAGS:-}" -o "$bin/" ./cmd/laxity ./cmd/laxity-exporter ./cmd/laxity-actuator
root laxity "$bin/laxity" "$bin/laxity-exporter" "$bin/laxity-actuator"
image laxity

device=auto files=compose.yaml:gpu.yaml profiles=grafana settings= only=
# set NAME VALUE: a line of .env.
set_() { settings="$settings$1=$2
"; }
for what in "$@"; do
	case $what in
	--sim)
		device=sim:/run/laxity-sim/gpu.sock files=compose.yaml:sim.yaml profiles=
		go build -trimpath -o "$bin/" ./compose/simgpu
		"$bin/simgpu" build "$context"
		root simgpu "$bin/simgpu"
		mkdir -p "$context/simgpu/usr/lib/laxity-sim"
		cp "$context/libcuda.so.1" "$context/simgpu/usr/lib/laxity-sim/"
		image simgpu 'ENTRYPOINT ["simgpu"]'
		root tenant "$context/matmul"
		image tenant 'ENTRYPOINT ["matmul"]'
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
		set_ PROMETHEUS_IMAGE laxity-prometheus:local
		set_ ALERTMANAGER_IMAGE laxity-alertmanager:local
		;;
	--images) only=images ;;
	*)
		echo "build.sh: $what? It takes --sim, --prometheus and --images" >&2
		exit 2
		;;
	esac
done
[ -z "$only" ] || exit 0

# What follows is tried, or asked of the engine, because names of distributions say little.
major=${engine%%.*} kernel=${engine#* }
older() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" != "$2" ]; }
if [ "$major" -lt 23 ]; then # it does not know the two
	set_ LAXITY_CAP_BPF SYS_ADMIN
	set_ LAXITY_CAP_PERFMON CAP_SYS_ADMIN # the same, written otherwise: docker-compose 1.29 takes no name twice
elif older "$kernel" 6.10; then # its security fixes let only SYS_ADMIN set probes
	set_ LAXITY_CAP_PERFMON SYS_ADMIN
fi
docker run --rm --network none --oom-score-adj -900 laxity:local laxity-actuator --version >/dev/null 2>&1 || {
	docker run --rm --network none laxity:local laxity-actuator --version >/dev/null # or it is something else
	echo "build.sh: Docker may not lower oom_score_adj here: a machine that runs out of memory may end the guardian"
	set_ LAXITY_OOM_SCORE_ADJ 0
}
# The record of whom the memory guard has stopped must outlive the containers: a folder in the host's BPF file
# system, where Docker can make none if that is not mounted.
docker run --rm --network none -v "${LAXITY_BPF:-/sys/fs/bpf/laxity}:/sys/fs/bpf" laxity:local laxity-actuator --version >/dev/null 2>&1 || {
	echo "build.sh: no BPF file system is mounted at /sys/fs/bpf: whoever kills actuator and guardian at once leaves processes stopped that wait for GPU memory. Mount it (mount -t bpf bpf /sys/fs/bpf, and in /etc/fstab), and run build.sh again"
	set_ LAXITY_BPF bpf
}

compose=
if docker compose version >/dev/null 2>&1; then
	compose='docker compose'
elif command -v docker-compose >/dev/null; then
	compose=docker-compose
fi
version=$([ -z "$compose" ] || $compose version --short) # of one built from source it is no number
version=${version#v}
if [ "$(docker info --format '{{.CgroupVersion}}')" = 2 ]; then
	case $version in
	1.* | 2.[0-9] | 2.[0-9].* | 2.1[0-4] | 2.1[0-4].*) echo "build.sh: Docker Compose $version cannot give a container the host's cgroup namespace: the actuator does not see a container's memory limit before it swaps that out, and looks for its freezer among all control groups. Compose 2.15 and later can" ;;
	*) files=$files:cgroup.yaml ;;
	esac
fi
set_ COMPOSE_PROJECT_NAME laxity
set_ COMPOSE_FILE "$files"
set_ COMPOSE_PROFILES "$profiles"
set_ LAXITY_DEVICE "$device"

env=${LAXITY_ENV_FILE:-compose/.env}
# Of the file that is there stays what build.sh never writes.
own='LAXITY_CAP_BPF|LAXITY_CAP_PERFMON|LAXITY_BPF|LAXITY_OOM_SCORE_ADJ|LAXITY_DEVICE|PROMETHEUS_IMAGE|ALERTMANAGER_IMAGE|COMPOSE_PROJECT_NAME|COMPOSE_FILE|COMPOSE_PROFILES'
kept=$([ ! -e "$env" ] || grep -vE "^($own)=|^# build.sh" "$env" || true)
printf '# build.sh writes these; your own settings below stay.\n%s%s\n' "$settings" "${kept:+$kept}" >"$env"

echo
echo "The images are built, and $env has what this machine needs. Now, in the folder compose:"
case $version in
'') echo "  install Compose first (Debian and Ubuntu: apt-get install docker-compose)" ;;
1.29.*) ;;
0.* | 1.*) echo "  Compose $version is too old: install 1.29, or 2 (Debian and Ubuntu: apt-get install docker-compose)" ;;
esac
[ -n "$compose" ] || compose='docker compose'
echo "  $compose up -d                    # then http://localhost:9871"
echo "  $compose --profile grafana down   # the end of all of it; -v removes what it remembers, too"
