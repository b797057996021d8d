package cudafile

import (
	"fmt"

	"github.com/laxity/laxity/internal/cache"
)

// Remembered keeps the functions of at most cache.Most files, 20 KiB each at most: a tenant can make
// ever new files. The zero value is empty. It is safe for concurrent use.
type Remembered struct{ byID cache.Cache[Functions] }

// Functions is File.Functions, but does not read a file that it remembers.
func (r *Remembered) Functions(f *File) (Functions, error) {
	id := fmt.Sprint(f.ID)
	if functions, ok := r.byID.Get(id); ok {
		return functions, nil
	}
	functions, err := f.Functions()
	if err != nil {
		return nil, err
	}
	r.byID.Put(id, functions)
	return functions, nil
}

// Len is how many files are remembered.
func (r *Remembered) Len() int { return r.byID.Len() }
