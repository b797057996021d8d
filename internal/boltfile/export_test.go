package boltfile

import "os"

// SetOpenFile changes how files are opened, until restore.
func SetOpenFile(f func(string, int, os.FileMode) (*os.File, error)) (restore func()) {
	before := openFile
	openFile = f
	return func() { openFile = before }
}
