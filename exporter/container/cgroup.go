package container

import (
	"bytes"
	"strings"
)

// idLength is the length of a container's id: 32 bytes in hex.
const idLength = 64

// ParseCgroup reads the content of a /proc/PID/cgroup file and returns the id of
// the container that the process belongs to: the outermost stand-alone run of 64
// lower-case hex digits in a control group's path. Outermost, because a
// container may make control groups of any name, but only below its own.
//
// ok is false for a process that is in no container, for a container's monitor
// (conmon), and for a zombie of cgroup v1, whose paths all read "/".
func ParseCgroup(data []byte) (id string, ok bool) {
	for line := range bytes.Lines(data) {
		// hierarchy:controllers:path, where the path may hold further colons.
		fields := strings.SplitN(strings.TrimSuffix(string(line), "\n"), ":", 3)
		if len(fields) < 3 {
			continue
		}
		if id, ok = IDInPath(fields[2]); ok {
			return id, true
		}
	}
	return "", false
}

// IDInPath is ParseCgroup for one control group's path. Names may be left out of
// it, but for those that may be a container's.
func IDInPath(path string) (string, bool) {
	for i := 0; i+idLength <= len(path); {
		if !isHex(path[i]) {
			i++
			continue
		}
		end := i
		for end < len(path) && isHex(path[end]) {
			end++
		}
		if end-i == idLength && standsAlone(path, i, end) && !notContainer(path[:i]) {
			return path[i:end], true
		}
		i = end
	}
	return "", false
}

// notContainer reports whether the id after this part of a path is a monitor's or, without systemd,
// that of a Podman pod, whose containers are below.
func notContainer(before string) bool {
	return strings.HasSuffix(before, "conmon-") || before == "/libpod_parent/"
}

// standsAlone reports whether path[start:end] is not part of a longer word.
func standsAlone(path string, start, end int) bool {
	return (start == 0 || !isWord(path[start-1])) && (end == len(path) || !isWord(path[end]))
}

func isHex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' }

func isWord(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
