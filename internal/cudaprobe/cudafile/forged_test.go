package cudafile_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/laxity/laxity/internal/cudaprobe/cudafile"
)

// forged makes a library with these dynamic symbols: offsets into a table of names.
func forged(names string, symbols ...int) []byte {
	const code, sections = 4096, 5
	var table bytes.Buffer
	table.Write(make([]byte, elf.Sym64Size)) // the first one is none
	for i, name := range symbols {
		_ = binary.Write(&table, binary.LittleEndian, elf.Sym64{
			Name: uint32(name), Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC), Shndx: 1, Value: uint64(i),
		})
	}
	const header, segment, section = 64, 56, 64
	at := uint64(header + segment + sections*section)
	var b bytes.Buffer
	write := func(v any) { _ = binary.Write(&b, binary.LittleEndian, v) }
	write(elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_DYN), Machine: uint16(elf.EM_AARCH64), Version: uint32(elf.EV_CURRENT),
		Phoff: header, Shoff: header + segment, Ehsize: header, Phentsize: segment, Phnum: 1, Shentsize: section, Shnum: sections, Shstrndx: 4,
	})
	write(elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Filesz: 1 << 20, Memsz: 1 << 20})
	write(elf.Section64{})
	write(elf.Section64{Type: uint32(elf.SHT_PROGBITS), Off: at, Size: 1})
	write(elf.Section64{Type: uint32(elf.SHT_DYNSYM), Off: at + code, Size: uint64(table.Len()), Link: 3, Entsize: elf.Sym64Size})
	write(elf.Section64{Type: uint32(elf.SHT_STRTAB), Off: at + code + uint64(table.Len()), Size: uint64(len(names))})
	write(elf.Section64{Type: uint32(elf.SHT_STRTAB), Off: at, Size: 1})
	b.Write(make([]byte, code))
	b.Write(table.Bytes())
	b.WriteString(names)
	return b.Bytes()
}

// A tenant decides how many functions a file has, and how long their names are.
func TestForgedFunctions(t *testing.T) {
	const names = "\x00cuInit\x00cuCtxCreate_v2\x00"
	const initName, contextName = 1, 8
	some := func(n int) []int {
		all := []int{initName}
		for range n {
			all = append(all, contextName)
		}
		return all
	}
	long := names + strings.Repeat("x", 1<<20) + "\x00"
	var overlapping []int
	for i := range 500 {
		overlapping = append(overlapping, len(names)+i)
	}
	for name, tt := range map[string]struct {
		file []byte
		want error
	}{
		"many contexts":            {forged(names, some(64)...), nil},
		"too many contexts":        {forged(names, some(65)...), cudafile.ErrNotDriver},
		"340,000 contexts":         {forged(names, some(340_000)...), cudafile.ErrNotDriver},
		"long names that overlap":  {forged(long, append(overlapping, initName)...), nil},
		"a name outside the table": {forged(names, initName, 1<<30), nil},
		"names without an end":     {forged(strings.TrimSuffix(names, "\x00"), some(1)...), nil},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			put(t, root+"/usr/lib64/libcuda.so.1", tt.file)
			files, err := cudafile.Finder{Proc: fakeProc(t, root, nil)}.Container(7)
			if err != nil || len(files) != 1 {
				t.Fatal(paths(files), err)
			}
			defer cudafile.CloseAll(files)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if _, err := files[0].Functions(); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			runtime.ReadMemStats(&after)
			if mib := (after.TotalAlloc - before.TotalAlloc) >> 20; mib > 64 {
				t.Errorf("it took %d MiB", mib)
			}
		})
	}
}
