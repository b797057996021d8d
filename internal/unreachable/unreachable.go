// Package unreachable says that no exporter or actuator answers, in the same words everywhere.
//
// It is a leaf. It imports the standard library only.
package unreachable

import (
	"errors"
	"fmt"
	"net/url"
)

// Error says which part (exporter or actuator) does not answer, and at which address. It keeps err
// wrapped, without the address that an HTTP client puts before it.
func Error(part, address string, err error) error {
	var failed *url.Error
	if errors.As(err, &failed) {
		err = failed.Err
	}
	return fmt.Errorf("no %[1]s answers at %[2]s (is laxity up, or laxity-%[1]s, running there?): %[3]w", part, address, err)
}

// At is Error for a request to this URL.
func At(part string, u *url.URL, err error) error {
	return Error(part, u.Scheme+"://"+u.Host, err)
}
