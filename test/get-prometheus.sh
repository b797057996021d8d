#!/bin/sh
# Gets a real Prometheus and Alertmanager for the tests of the chain, where that
# can be done without asking: as root (or with passwordless sudo) on Debian and
# Ubuntu. Elsewhere it says what is missing; those tests then skip, with the reason.
set -eu
missing=
for program in prometheus promtool prometheus-alertmanager amtool; do
	command -v "$program" >/dev/null 2>&1 || missing="$missing $program"
done
[ -z "$missing" ] && exit 0

sudo=
if [ "$(id -u)" -ne 0 ]; then
	if command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then sudo='sudo -n'; else sudo=none; fi
fi
if [ "$sudo" = none ] || ! command -v apt-get >/dev/null 2>&1; then
	echo "get-prometheus: missing:$missing. Install Prometheus and Alertmanager (Debian and Ubuntu:" >&2
	echo "get-prometheus: apt-get install prometheus prometheus-alertmanager) to run the tests of the chain; they skip until then." >&2
	exit 0
fi

echo "get-prometheus: installing Debian's prometheus and prometheus-alertmanager (missing:$missing)"
# The packages would start daemons on their default ports: nobody asked for those.
policy=/usr/sbin/policy-rc.d
made=
if [ ! -e $policy ]; then
	printf '#!/bin/sh\nexit 101\n' | $sudo tee $policy >/dev/null
	$sudo chmod 755 $policy
	made=1
fi
trap '[ -z "$made" ] || $sudo rm -f $policy' EXIT
install() { $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends prometheus prometheus-alertmanager >/dev/null; }
install || { $sudo apt-get update -qq && install; } || {
	echo "get-prometheus: apt-get could not install them; the tests of the chain will skip" >&2
}
