package main

import (
	"fmt"
	"regexp"
	"strings"
)

var described = regexp.MustCompile(`^v?(\d+\.\d+\.\d+)(?:-([a-zA-Z][a-zA-Z0-9.]*))?(?:-(\d+)-(g[0-9a-f]+))?$`)

// packageVersion turns what git describe prints into a version that dpkg and rpm sort as it came
// to be: 1.2.3 < 1.2.3+4.gabc1234 < 1.3.0~rc1 < 1.3.0~rc1+2.gdef5678 < 1.3.0. In both, ~ sorts
// before the end and + after it.
func packageVersion(describe string) (string, error) {
	clean, dirty := strings.CutSuffix(describe, "-dirty")
	m := described.FindStringSubmatch(clean)
	if m == nil {
		return "", fmt.Errorf("the version %q is none that git describe prints: v1.2.3, v1.2.3-rc1, v1.2.3-4-gabc1234, each with or without -dirty", describe)
	}
	version, pre, commits, commit := m[1], m[2], m[3], m[4]
	if pre != "" {
		version += "~" + pre
	}
	switch {
	case commits != "" && dirty:
		version += "+" + commits + "." + commit + ".dirty"
	case commits != "":
		version += "+" + commits + "." + commit
	case dirty:
		version += "+0.dirty"
	}
	return version, nil
}
