package cudafile

import "testing"

func FuzzParseCache(f *testing.F) {
	f.Add([]byte(cacheMagic + "\x01\x00\x00\x00"))
	f.Fuzz(func(_ *testing.T, data []byte) { parseCache(data) })
}

func FuzzParseMap(f *testing.F) {
	f.Add("7f00-7f10 r-xp 00000000 08:01 1234                       /usr/lib/libcuda.so.1 (deleted)")
	f.Fuzz(func(t *testing.T, line string) {
		if span, _, _, ok := parseMap(line); ok && span == "" {
			t.Error("no span")
		}
	})
}
