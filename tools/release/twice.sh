#!/usr/bin/env bash
# Runs the command that made dist/ once more, for a copy of the committed and staged files in another
# folder and with an empty build cache, and compares the checksums. make dist-twice calls it.
set -euo pipefail
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
program=$(realpath "$1")
shift
mkdir -p "$tmp/elsewhere/laxity"
git ls-files -z | xargs -0 cp --parents -t "$tmp/elsewhere/laxity"
(cd "$tmp/elsewhere/laxity" && GOCACHE="$tmp/cache" "$program" "$@" --out="$tmp/dist")
diff dist/sha256sums "$tmp/dist/sha256sums"
echo "the second build has the same bytes:"
cat dist/sha256sums
