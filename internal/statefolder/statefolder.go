// Package statefolder names the state folders of actuators. What an actuator has stopped is on
// record outside of that folder, under its name: so actuator, guardian and laxity off must agree
// on the name, and no two folders may share one.
//
// It imports the standard library only.
package statefolder

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// ID names one folder of this machine until it is booted again. It may be part of a file's name.
type ID string

// Of returns the name of a folder, which it makes if that is missing. By its device and inode: two
// programs in different mount namespaces may see two folders at one path, or one at two paths.
func Of(dir string) (ID, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make the state folder: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return "", fmt.Errorf("name the state folder: %w", err)
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "", errors.New("name the state folder: this system has no inodes")
	}
	return ID(fmt.Sprintf("%x-%x", s.Dev, s.Ino)), nil
}

// ByPath is the name that versions up to 0.2 gave a folder. What they left is undone by it.
func ByPath(dir string) ID {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	sum := sha256.Sum256([]byte(dir))
	return ID(hex.EncodeToString(sum[:8]))
}
