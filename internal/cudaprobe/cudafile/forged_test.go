package cudafile_test

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
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

// The offsets of headers in what forged makes, bytes.
const (
	headerAt   = 0
	sectionsAt = 64 + 56
)

// sectionAt is the offset of a section's header.
func sectionAt(i int) int { return sectionsAt + i*64 }

// changed is a copy of a file in which the header at an offset is changed.
func changed[T elf.Header64 | elf.Section64](file []byte, at int, change func(*T)) []byte {
	file = bytes.Clone(file)
	var header T
	if _, err := binary.Decode(file[at:], binary.LittleEndian, &header); err != nil {
		panic(err)
	}
	change(&header)
	if _, err := binary.Encode(file[at:], binary.LittleEndian, header); err != nil {
		panic(err)
	}
	return file
}

// zeros are 128 MiB of them, deflated.
var zeros = sync.OnceValue(func() []byte {
	var b bytes.Buffer
	w := zlib.NewWriter(&b)
	for range 128 {
		_, _ = w.Write(make([]byte, 1<<20))
	}
	_ = w.Close()
	return b.Bytes()
})

// inflating names a section as compressed ones were named once, and puts zeros into it: package elf
// inflates them for that name.
func inflating(file []byte, section int) []byte {
	const name, nameTable = "\x00.zdebug_x\x00", 4
	content := append(binary.BigEndian.AppendUint64([]byte("ZLIB"), 1<<33), zeros()...)
	end := uint64(len(file))
	file = slices.Concat(file, []byte(name), content)
	file = changed(file, sectionAt(nameTable), func(s *elf.Section64) { s.Off, s.Size = end, uint64(len(name)) })
	return changed(file, sectionAt(section), func(s *elf.Section64) {
		s.Name, s.Off, s.Size = 1, end+uint64(len(name)), uint64(len(content))
	})
}

// A tenant decides what a file says of itself: how many functions it has, how long their names and its
// tables are.
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
	good := forged(names, some(1)...)
	onNames := func(change func(*elf.Section64)) []byte { return changed(good, sectionAt(3), change) }
	const most = 1 << 10 // of segments, and of sections
	for name, tt := range map[string]struct {
		file []byte
		want error
	}{
		"many contexts":            {forged(names, some(64)...), nil},
		"too many contexts":        {forged(names, some(65)...), cudafile.ErrNotDriver},
		"70,000 of no use":         {forged(names, append(make([]int, 70_000), initName, contextName)...), cudafile.ErrNotDriver},
		"340,000 contexts":         {forged(names, some(340_000)...), cudafile.ErrNotDriver},
		"long names that overlap":  {forged(long, append(overlapping, initName)...), nil},
		"a name outside the table": {forged(names, initName, 1<<30), nil},
		"names without an end":     {forged(strings.TrimSuffix(names, "\x00"), some(1)...), nil},

		"symbols that inflate":  {inflating(good, 2), cudafile.ErrNotDriver},
		"names that inflate":    {inflating(good, 3), cudafile.ErrNotDriver},
		"compressed names":      {onNames(func(s *elf.Section64) { s.Flags |= uint64(elf.SHF_COMPRESSED) }), cudafile.ErrNotDriver},
		"names without a place": {onNames(func(s *elf.Section64) { s.Type = uint32(elf.SHT_NOBITS) }), cudafile.ErrNotDriver},
		"names of 2 GiB":        {onNames(func(s *elf.Section64) { s.Size = 1 << 31 }), cudafile.ErrNotDriver},
		"names beyond the end":  {onNames(func(s *elf.Section64) { s.Off = math.MaxInt64 - 1<<12 }), cudafile.ErrNotDriver},
		"names before the file": {onNames(func(s *elf.Section64) { s.Off = math.MaxUint64 }), cudafile.ErrNotDriver},
		"long segment headers": {changed(good, headerAt, func(h *elf.Header64) {
			h.Phnum, h.Phentsize = most, math.MaxUint16
		}), cudafile.ErrNotDriver},
		"long section headers": {changed(good, headerAt, func(h *elf.Header64) {
			h.Shnum, h.Shentsize = most, math.MaxUint16
		}), cudafile.ErrNotDriver},
		"short section headers": {changed(good, headerAt, func(h *elf.Header64) { h.Shentsize = 1 }), cudafile.ErrNotDriver},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			put(t, root+"/usr/lib64/libcuda.so.1", tt.file)
			// A hole, which costs a tenant nothing: long tables do not lie beyond the end.
			if err := os.Truncate(root+"/usr/lib64/libcuda.so.1", 128<<20); err != nil {
				t.Fatal(err)
			}
			files, err := cudafile.Finder{Proc: fakeProc(t, root, nil)}.Container(7)
			if err != nil || len(files) != 1 {
				t.Fatal(paths(files), err)
			}
			defer cudafile.CloseAll(files)
			takesLittle(t, func() {
				if _, err := files[0].Functions(); !errors.Is(err, tt.want) {
					t.Errorf("got %v, want %v", err, tt.want)
				}
			})
		})
	}
}

// takesLittle fails if something takes more than 64 MiB of memory.
func takesLittle(t *testing.T, something func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	something()
	runtime.ReadMemStats(&after)
	if mib := (after.TotalAlloc - before.TotalAlloc) >> 20; mib > 64 {
		t.Errorf("it took %d MiB", mib)
	}
}

// changing is a file that changes while it is read: a byte is another one when it is read again.
type changing struct {
	first, then []byte // then is no shorter
	read        []bool // by the byte of then
}

func (c *changing) ReadAt(b []byte, at int64) (int, error) {
	if at < 0 || at >= int64(len(c.then)) {
		return 0, io.EOF
	}
	n := copy(b, c.then[at:])
	for i := range n {
		place := int(at) + i
		if !c.read[place] && place < len(c.first) {
			b[i] = c.first[place]
		}
		c.read[place] = true
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// A tenant can write a file while we read it: what was checked is what is used.
func TestFunctionsOfAFileThatChanges(t *testing.T) {
	const many = 1 << 19
	// Where the header counts no sections, the first section says how many there are.
	good := changed(forged("\x00cuInit\x00", 1), sectionAt(0), func(s *elf.Section64) { s.Size = many })
	want, err := cudafile.ReadFunctions(bytes.NewReader(good), int64(len(good)))
	if err != nil {
		t.Fatal(err)
	}
	packed, err := binary.Append(nil, binary.LittleEndian, elf.Chdr64{Type: uint32(elf.COMPRESS_ZLIB), Size: 128 << 20})
	if err != nil {
		t.Fatal(err)
	}
	packed = append(packed, zeros()...)
	for name, then := range map[string][]byte{
		"more sections": append(changed(good, headerAt, func(h *elf.Header64) { h.Shnum = 0 }), make([]byte, many*64)...),
		"the sections' names are compressed": append(changed(good, sectionAt(4), func(s *elf.Section64) {
			s.Flags, s.Off, s.Size = uint64(elf.SHF_COMPRESSED), uint64(len(good)), uint64(len(packed))
		}), packed...),
		"no ELF file": make([]byte, len(good)),
	} {
		t.Run(name, func(t *testing.T) {
			file := &changing{first: good, then: then, read: make([]bool, len(then))}
			takesLittle(t, func() {
				got, err := cudafile.ReadFunctions(file, int64(len(good)))
				if err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("got %v, %v; want %v", got, err, want)
				}
			})
		})
	}
}

func FuzzReadFunctions(f *testing.F) {
	f.Add([]byte("\x7fELF\x02\x01\x01"))
	f.Add(forged("\x00cuInit\x00", 1))
	f.Fuzz(func(t *testing.T, data []byte) {
		functions, err := cudafile.ReadFunctions(bytes.NewReader(data), int64(len(data)))
		if err == nil && len(functions[cudafile.Init]) == 0 {
			t.Error("a driver without cuInit")
		}
	})
}
