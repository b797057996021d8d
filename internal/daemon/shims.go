package daemon

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// KillShims kills the shims of the containerd at that socket, and the containers' processes, which are
// their children: those that could not be removed.
func KillShims(socket string) {
	shims := map[int]bool{}
	each("cmdline", func(pid int, text []byte) {
		if bytes.Contains(text, []byte("containerd-shim")) && bytes.Contains(text, []byte("\x00"+socket+"\x00")) {
			shims[pid] = true
		}
	})
	each("stat", func(pid int, text []byte) {
		fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
		if len(fields) < 2 {
			return
		}
		if parent, err := strconv.Atoi(string(fields[1])); err == nil && shims[parent] {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	for pid := range shims {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// each reads a file of every process.
func each(name string, do func(pid int, text []byte)) {
	all, _ := filepath.Glob("/proc/[0-9]*/" + name) // the pattern is well-formed
	for _, file := range all {
		text, _ := os.ReadFile(file) // gone: it has ended
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			do(pid, text)
		}
	}
}
