package main

import (
	"debug/elf"
	"testing"
)

func TestPackageVersion(t *testing.T) {
	for describe, want := range map[string]string{
		"v0.1.0":                    "0.1.0",
		"v0.1.0-5-gabc1234":         "0.1.0+5.gabc1234",
		"v0.1.0-5-gabc1234-dirty":   "0.1.0+5.gabc1234.dirty",
		"v0.1.0-dirty":              "0.1.0+0.dirty",
		"v0.2.0-rc1":                "0.2.0~rc1",
		"v0.2.0-rc1-3-gdef5678":     "0.2.0~rc1+3.gdef5678",
		"v0.0.0-523-g3042785":       "0.0.0+523.g3042785",
		"v0.2.0-alpha.1":            "0.2.0~alpha.1",
		"":                          "",
		"unknown":                   "",
		"3042785":                   "",
		"v1.2":                      "",
		"v1.2.3-4":                  "",
		"v1.2.3 && touch something": "",
	} {
		got, err := packageVersion(describe)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", describe, got, err, want)
		}
	}
}

func TestCompiler(t *testing.T) {
	if _, err := compiler("riscv64"); err == nil {
		t.Error("there is a release for riscv64")
	}
	if p := processors["arm64"]; p.machine != elf.EM_AARCH64 || p.rpm != "aarch64" {
		t.Errorf("%+v", p)
	}
}
