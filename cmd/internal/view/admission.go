package view

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/internal/plain"
)

// addAdmission adds to the rows why a deadline cannot be promised.
func addAdmission(rows []Row, containers []state.Container) {
	for i := range rows {
		r := &rows[i]
		if at := slices.IndexFunc(containers, func(c state.Container) bool { return c.ID == r.ContainerID }); at >= 0 {
			r.Unmet = containers[at].DeadlineUnmet
		}
	}
}

// WriteUnmet writes, for each container whose deadline cannot be promised, a line that says why.
func WriteUnmet(w io.Writer, rows []Row) error {
	var b strings.Builder
	said := map[string]bool{}
	for _, r := range rows {
		if r.Unmet == "" || said[r.ContainerID] {
			continue
		}
		said[r.ContainerID] = true
		fmt.Fprintf(&b, "%s: its deadline cannot be promised: %s\n", plain.Line(r.Container), plain.Line(r.Unmet))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
