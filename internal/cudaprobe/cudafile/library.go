package cudafile

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Bounds on what is read of a file that a tenant may have forged. The real library has some 700
// functions in 100 MB.
const (
	maxFileSize  = 1 << 30
	maxTableSize = 8 << 20
	maxHeaders   = 1 << 10 // of segments, and of sections
	maxSymbols   = 1 << 16
	maxName      = 64 // of a function; ours have up to 40 letters
)

// What one header takes in the file, bytes.
const (
	headerSize  = 64
	segmentSize = 56
	sectionSize = 64
)

// library is the headers of a shared library. They are read once, since a tenant may write the file
// meanwhile: what is read later is bounded by what was checked here.
//
// Of package elf only the types are used: an elf.File trusts counts and sizes, and inflates a section
// for its flag, or for its name alone.
type library struct {
	file     io.ReaderAt
	machine  elf.Machine
	segments []elf.Prog64
	sections []elf.Section64
}

// readLibrary reads the headers of a 64-bit little-endian file: the driver exists for no other machine.
func readLibrary(file io.ReaderAt) (*library, error) {
	var header elf.Header64
	if err := read(file, 0, headerSize, &header); err != nil {
		return nil, err
	}
	ident := header.Ident
	if string(ident[:elf.EI_CLASS]) != elf.ELFMAG || elf.Class(ident[elf.EI_CLASS]) != elf.ELFCLASS64 || elf.Data(ident[elf.EI_DATA]) != elf.ELFDATA2LSB {
		return nil, errors.New("no 64-bit little-endian ELF file")
	}
	if header.Phnum > maxHeaders || header.Phentsize != segmentSize || header.Shnum > maxHeaders || header.Shentsize != sectionSize {
		return nil, fmt.Errorf("%d segments of %d bytes, %d sections of %d bytes", header.Phnum, header.Phentsize, header.Shnum, header.Shentsize)
	}
	l := &library{
		file: file, machine: elf.Machine(header.Machine),
		segments: make([]elf.Prog64, header.Phnum), sections: make([]elf.Section64, header.Shnum),
	}
	if err := read(file, header.Phoff, segmentSize*uint64(header.Phnum), l.segments); err != nil {
		return nil, err
	}
	if err := read(file, header.Shoff, sectionSize*uint64(header.Shnum), l.sections); err != nil {
		return nil, err
	}
	return l, nil
}

// read decodes what a file has at an offset.
func read(file io.ReaderAt, at, size uint64, to any) error {
	data, err := readBytes(file, at, size)
	if err != nil {
		return err
	}
	_, err = binary.Decode(data, binary.LittleEndian, to)
	return err
}

// readBytes reads size bytes at an offset. The caller has bounded the size.
func readBytes(file io.ReaderAt, at, size uint64) ([]byte, error) {
	if at > maxFileSize {
		return nil, errors.New("a part of it lies beyond its end")
	}
	data := make([]byte, size)
	_, err := io.ReadFull(io.NewSectionReader(file, int64(at), int64(size)), data)
	return data, err
}

// table reads a section as it is in the file.
func (l *library) table(s elf.Section64) ([]byte, error) {
	if s.Size > maxTableSize {
		return nil, fmt.Errorf("its table of %d bytes is too large", s.Size)
	}
	if elf.SectionType(s.Type) == elf.SHT_NOBITS || elf.SectionFlag(s.Flags)&elf.SHF_COMPRESSED != 0 {
		return nil, errors.New("its table is compressed, or not in the file")
	}
	return readBytes(l.file, s.Off, s.Size)
}

// eachSymbol passes the dynamic symbols to each, until it fails. Package elf would copy each name,
// whatever its length, and read tables of versions that we do not need: a file of 16 MB could make it
// take terabytes.
func (l *library) eachSymbol(each func(name string, s elf.Sym64) error) error {
	symbols, names, err := l.symbols()
	if err != nil {
		return err
	}
	if n := len(symbols) / elf.Sym64Size; n > maxSymbols {
		return fmt.Errorf("its %d dynamic symbols are too many", n)
	}
	for ; len(symbols) >= elf.Sym64Size; symbols = symbols[elf.Sym64Size:] {
		var s elf.Sym64
		if _, err := binary.Decode(symbols, binary.LittleEndian, &s); err != nil {
			return err
		}
		if int(s.Name) >= len(names) {
			continue
		}
		name := names[s.Name:min(len(names), int(s.Name)+maxName)]
		end := bytes.IndexByte(name, 0)
		if end < 0 {
			continue // too long for one of ours
		}
		if err := each(string(name[:end]), s); err != nil {
			return err
		}
	}
	return nil
}

// symbols reads the table of dynamic symbols, and that of their names.
func (l *library) symbols() (symbols, names []byte, err error) {
	for _, s := range l.sections {
		if elf.SectionType(s.Type) != elf.SHT_DYNSYM {
			continue
		}
		if s.Link == 0 || int(s.Link) >= len(l.sections) {
			break
		}
		if symbols, err = l.table(s); err != nil {
			return nil, nil, err
		}
		names, err = l.table(l.sections[s.Link])
		return symbols, names, err
	}
	return nil, nil, errors.New("it has no dynamic symbols")
}

// fileOffset converts an address in the library's memory into an offset in its file.
func (l *library) fileOffset(address uint64) (uint64, bool) {
	for _, p := range l.segments {
		if elf.ProgType(p.Type) == elf.PT_LOAD && elf.ProgFlag(p.Flags)&elf.PF_X != 0 && p.Vaddr <= address && address-p.Vaddr < p.Filesz {
			return address - p.Vaddr + p.Off, true
		}
	}
	return 0, false
}
