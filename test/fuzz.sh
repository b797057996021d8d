#!/usr/bin/env bash
# Runs every fuzz test for FUZZ_TIME, a line each; fails at the end when one of them has.
set -uo pipefail
cd "$(dirname "$0")/.."
: "${FUZZ_TIME:=20s}"
failed=0 tests=0

# ended_late: nothing failed but the end of -fuzztime, which go test before Go 1.27 reports as a
# failure where the machine is busy (golang/go#75804). An input that fails is always written.
ended_late() {
	[[ $1 == *"context deadline exceeded"* && $1 != *"Failing input written"* && $1 != *panic* && $1 != *"hung or terminated"* ]]
}

while IFS=: read -r file name; do
	tests=$((tests + 1)) package=${file%/*}
	output=$(go test -run '^$' -fuzz "^$name\$" -fuzztime "$FUZZ_TIME" -fuzzminimizetime 1s "$package" 2>&1)
	code=$?
	inputs=$(sed -n 's/^fuzz: elapsed: .*execs: \([0-9]*\) .*/\1/p' <<<"$output" | tail -n 1)
	if [ $code -eq 0 ] && [[ $output != *"no fuzz tests to fuzz"* ]]; then
		echo "ok   $package $name: ${inputs:-only stored} inputs"
	elif ended_late "$output" && [ -n "$inputs" ]; then
		echo "ok   $package $name: $inputs inputs (go test took the end of its time for a failure)"
	else
		failed=$((failed + 1))
		echo "FAIL $package $name"
		tail -n 30 <<<"$output" | sed 's/^/     /'
	fi
done < <(grep -r --include='*_test.go' -o '^func Fuzz[A-Za-z0-9]*(' . | sed 's/func //; s/($//' | sort)
[ $tests -gt 0 ] || { echo "no fuzz test was found"; exit 1; }
[ $failed -eq 0 ] || { echo "$failed of $tests fuzz tests failed; an input that makes one fail is in testdata/fuzz beside it"; exit 1; }
