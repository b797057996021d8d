package ladder_test

import (
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/plan/ladder"
)

const (
	settled = 16 * time.Second // from here on figures count
	over    = 22 * time.Second
)

// draws is how many worlds are drawn; fewer with -short, and under the race detector.
var draws = 10_000

// Ten thousand draws of servers, trainers, tasks, shares and others' containers, each
// run with the plan and as by default.
func TestProperties(t *testing.T) {
	const parts = 4
	from, to := 0, draws
	if testing.Short() {
		to = 100
	}
	if one, err := strconv.Atoi(os.Getenv("DRAW")); err == nil { // look at one again
		from, to = one, one+1
	}
	var astray atomic.Int64
	t.Run("draws", func(t *testing.T) {
		for part := range parts {
			t.Run(fmt.Sprint(part), func(t *testing.T) {
				t.Parallel()
				for i := from + part; i < to; i += parts {
					checkDraw(t, i, &astray)
				}
			})
		}
	})
	if n, most := astray.Load(), int64(1+(to-from)/1000); n > most {
		t.Errorf("%d draws of %d are farther from shares or from default's useful time than most are, want at most %d", n, to-from, most)
	}
}

// checkDraw looks at one draw. astray counts those that are farther from what is to hold than
// most: turns begin in them while figures are taken.
func checkDraw(t *testing.T, number int, astray *atomic.Int64) {
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
	if with.longest > ladder.MaxOff {
		fail("somebody was off for %v", with.longest)
	}
	// Bursts that happen to fall together in one of the two leave it with less to do.
	if most := def.useful / 5; mine.useful < def.useful-most && mine.lost > def.lost+most {
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
	if wrong := with.sharesKept(mine, 4); !with.crowdedOut() && wrong != "" {
		fail("%s", wrong)
	}
	less := def.useful * 3 / 20
	if with.sharesKept(mine, 1) != "" && !with.crowdedOut() || mine.useful < def.useful-less && mine.lost > def.lost+less {
		astray.Add(1)
		t.Logf("draw %d is astray: %s, useful time is %.3f of default's", number, with.sharesKept(mine, 1), mine.useful.Seconds()/def.useful.Seconds())
	}
	if wrong := with.kept(mine.got, 0.55); !with.crowdedOut() && wrong != "" {
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
