package nodes

import "sync/atomic"

// File is a nodes.yaml that can be read again. The zero File has no nodes; the
// other methods are safe for concurrent use.
type File struct {
	path string
	list atomic.Pointer[List]
}

// Open reads the file for the first time. An empty path is no file: then there
// are no nodes, and Reload does nothing.
func Open(path string) (*File, error) {
	f := &File{path: path}
	return f, f.Reload()
}

// Reload reads the file again. A bad one is an error and changes nothing.
func (f *File) Reload() error {
	if f.path == "" {
		return nil
	}
	l, err := Read(f.path)
	if err != nil {
		return err
	}
	f.list.Store(&l)
	return nil
}

// List returns the nodes; it must not be changed.
func (f *File) List() List {
	if l := f.list.Load(); l != nil {
		return *l
	}
	return nil
}

// Find returns the node with this name.
func (f *File) Find(name string) (Node, bool) { return f.List().Find(name) }
