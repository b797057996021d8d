package ladder_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/plan/ladder"
)

const (
	settled = 3 * time.Second // from here on figures count
	over    = 8 * time.Second
)

// draws is how many worlds are drawn; fewer with -short, and under the race detector.
var draws = 10_000

// Ten thousand draws of servers, trainers, tasks, shares and others' containers, each
// run with the plan and as by default.
func TestProperties(t *testing.T) {
	const parts = 4
	from, to := 0, draws
	if testing.Short() {
		to = 300
	}
	if one, err := strconv.Atoi(os.Getenv("DRAW")); err == nil { // look at one again
		from, to = one, one+1
	}
	for part := range parts {
		t.Run(fmt.Sprint(part), func(t *testing.T) {
			t.Parallel()
			for i := from + part; i < to; i += parts {
				checkDraw(t, i)
			}
		})
	}
}

func checkDraw(t *testing.T, number int) {
	t.Helper()
	with := draw(number, true)
	windows := with.watchWindows()
	mine := with.measureRun()
	def := draw(number, false).measureRun()
	fail := func(format string, args ...any) {
		t.Errorf("draw %d: %s\n%s", number, fmt.Sprintf(format, args...), with.describe(mine, def))
	}
	seconds := (over - settled).Seconds()
	if with.err != "" {
		fail("%s", with.err)
	}
	if with.longest > ladder.DefaultMaxOff {
		fail("somebody was off for %v", with.longest)
	}
	// Bursts that happen to fall together in one of the two leave it with less to do.
	if tenth := def.useful / 10; mine.useful < def.useful-tenth && mine.lost > def.lost+tenth {
		fail("useful time is %.3f of default's", mine.useful.Seconds()/def.useful.Seconds())
	}
	if most := seconds/(ladder.DefaultSlice*2/3+ladder.SwitchCost).Seconds() + 2*float64(mine.leaves); float64(mine.switches) > most {
		fail("%d switches, want at most %.0f", mine.switches, most)
	}
	if n := with.mostCalls(); n > 2*ladder.DefaultCalls {
		fail("%d calls within a second", n)
	}
	for _, a := range with.actors {
		if (!a.tenant.Labelled || a.tenant.Never) && float64(mine.got[a.tenant.ID]) < 0.97*float64(def.got[a.tenant.ID]) {
			fail("%s, which is not ours to act on, has %.3f of default", a.tenant.ID, mine.got[a.tenant.ID].Seconds()/def.got[a.tenant.ID].Seconds())
		}
	}
	if wrong := with.sharesKept(mine); !with.crowdedOut() && wrong != "" {
		fail("%s", wrong)
	}
	if wrong := with.kept(mine.got, 0.85); !with.crowdedOut() && wrong != "" {
		fail("%s", wrong)
	}
	for _, a := range with.actors {
		if a.overdue > 1 {
			fail("%s was off for too long %d times", a.tenant.ID, a.overdue)
		}
	}
	if *windows != "" && !with.crowdedOut() {
		fail("%s", *windows)
	}
	if with.late != "" {
		fail("%s", with.late)
	}
}
