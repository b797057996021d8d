package admission

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Words puts a trouble of the container with this name into a sentence without its full stop.
// beside are the names of those admitted. Empty if there is no trouble.
func (t Trouble) Words(name string, beside []string) string {
	if t.Kind == None {
		return ""
	}
	if t.Name != name {
		return fmt.Sprintf("with it %s would miss its deadline: %s", t.Name, t.figures(t.Name, names(append(slices.Clip(beside), name), t.Name)))
	}
	return t.figures("it", names(beside, name))
}

func (t Trouble) figures(it, beside string) string {
	switch t.Kind {
	case Long:
		if t.Beside {
			return fmt.Sprintf("%s takes %s by earlier runs, not all with the GPU to itself, and is due in %s", it, short(t.Need), short(t.Within))
		}
		return fmt.Sprintf("%s takes %s with the GPU to itself, and is due in %s", it, short(t.Need), short(t.Within))
	case Crowded:
		return fmt.Sprintf("%s needs %s of GPU time before its deadline in %s; %s is free%s", it, short(t.Need), short(t.Within), free(t.Free), beside)
	case Turns:
		return fmt.Sprintf("%s needs %s of GPU time for each request, due in %s; %s is free when all come at once%s", it, short(t.Need), short(t.Within), free(t.Free), beside)
	case Overload:
		return fmt.Sprintf("its requests want %.0f %% of the GPU; %.0f %% is free%s", 100*t.Load, 100*t.Room, beside)
	default:
		return ""
	}
}

// most is how many names are written out.
const most = 4

// names joins the names of those beside it, without some.
func names(all []string, without ...string) string {
	var who []string
	for _, n := range all {
		if !slices.Contains(without, n) && !slices.Contains(who, n) {
			who = append(who, n)
		}
	}
	switch n := len(who); {
	case n == 0:
		return ""
	case n == 1:
		return " beside " + who[0]
	case n > most:
		return fmt.Sprintf(" beside %s and %d more", strings.Join(who[:most], ", "), n-most)
	default:
		return " beside " + strings.Join(who[:n-1], ", ") + " and " + who[n-1]
	}
}

// Beside returns the names of those admitted.
func (g GPU) Beside() []string {
	var all []string
	for _, d := range g.Admitted {
		all = append(all, d.Name)
	}
	return all
}

// short formats a time with three digits.
func short(d time.Duration) string {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit).String()
}

// free formats an amount of free time.
func free(d time.Duration) string {
	if d <= 0 {
		return "nothing"
	}
	return short(d)
}
