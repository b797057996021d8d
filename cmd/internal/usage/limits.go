package usage

import (
	"fmt"

	"github.com/alecthomas/kingpin/v2"

	"github.com/laxity/laxity/exporter/task"
)

// flagged is a program or one of its commands.
type flagged interface {
	Flag(name, help string) *kingpin.FlagClause
}

// Limits adds the flags that bound what containers may claim.
func Limits(to flagged, l *task.Limits) {
	to.Flag("deadline.min", "Shortest deadline that a container may claim; a shorter label is reported and counts as none, a shorter change at run time is refused. 0s: any.").
		Default("0s").DurationVar(&l.MinDeadline)
	to.Flag("share.max", "Largest share of a GPU's time that a container may claim, such as 30%; a larger label is reported and counts as none.").
		Default("100%").SetValue((*share)(&l.MaxShare))
}

// share is in the format of the label laxity.share.
type share float64

// Set implements kingpin.Value.
func (s *share) Set(text string) error {
	n, err := task.ParseShare(text)
	*s = share(n)
	return err
}

// String implements kingpin.Value.
func (s *share) String() string { return fmt.Sprintf("%g%%", 100*float64(*s)) }
