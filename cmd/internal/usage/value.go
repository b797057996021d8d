package usage

import (
	"errors"
	"net/url"
	"time"

	"github.com/alecthomas/kingpin/v2"
)

// wrongValue is a wrong value on the command line that only the command itself could find.
type wrongValue struct{ error }

// Unwrap returns what is wrong.
func (w wrongValue) Unwrap() error { return w.error }

// Wrong makes an error one of usage; nil stays nil. The program ends with the exit code for these.
func Wrong(err error) error {
	if err == nil {
		return nil
	}
	return wrongValue{err}
}

// Is reports whether an error is one of usage.
func Is(err error) bool { return errors.As(err, new(wrongValue)) }

// Address makes a flag take the address of an HTTP server.
func Address(f *kingpin.FlagClause, standard string, to *string) {
	f.Default(standard).SetValue(&address{to, standard})
}

type address struct {
	to      *string
	example string
}

// Set implements kingpin.Value.
func (a *address) Set(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return errors.New("write an address such as " + a.example)
	}
	*a.to = text
	return nil
}

// String implements kingpin.Value.
func (a *address) String() string { return *a.to }

// Positive makes a flag take a duration longer than 0.
func Positive(f *kingpin.FlagClause, standard time.Duration, to *time.Duration) {
	f.Default(standard.String()).SetValue((*positive)(to))
}

type positive time.Duration

// Set implements kingpin.Value.
func (p *positive) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err == nil && d <= 0 {
		err = errors.New("write a duration longer than 0, such as 5s")
	}
	*p = positive(d)
	return err
}

// String implements kingpin.Value.
func (p *positive) String() string { return time.Duration(*p).String() }
