package cudaprobe

import (
	"testing"
	"time"
)

func TestDecide(t *testing.T) {
	const quiet = 80 * time.Millisecond
	ms := func(n float64) time.Duration { return time.Duration(n * float64(time.Millisecond)) }
	for _, c := range []struct {
		name  string
		s     sight
		want  verdict
		again float64 // ms
	}{
		{"nothing returned since it launched fast", sight{now: ms(500), since: ms(100), returned: ms(99)}, wait, 540},
		{"nothing returned, for long", sight{now: ms(9000), since: ms(100), returned: ms(100)}, wait, 9040},
		{"a call is under way", sight{now: ms(500), since: ms(100), returned: ms(200), calling: true}, wait, 540},
		{"a call is under way, for long", sight{now: ms(9000), since: ms(100), returned: ms(200), calling: true}, wait, 9040},
		{"it has just returned", sight{now: ms(500), since: ms(100), returned: ms(499)}, wait, 539},
		{"it returned a while ago", sight{now: ms(500), since: ms(100), returned: ms(465)}, wait, 520},
		{"it returned half a quiet time ago", sight{now: ms(500), since: ms(100), returned: ms(460)}, arm, 0},
		{"it returns again and again, for a second", sight{now: ms(1100), since: ms(100), returned: ms(1099)}, arm, 0},
		{"armed, and it launched", sight{now: ms(500), since: ms(100), returned: ms(440), armed: ms(480), launched: true}, resume, 0},
		{"armed, it launched and calls", sight{now: ms(500), since: ms(100), returned: ms(440), armed: ms(480), launched: true, calling: true}, resume, 0},
		{"armed, and a call is under way", sight{now: ms(600), since: ms(100), returned: ms(440), armed: ms(480), calling: true}, wait, 640},
		{"armed, quiet is not over", sight{now: ms(519), since: ms(100), returned: ms(440), armed: ms(480)}, wait, 520},
		{"armed, another call returned meanwhile", sight{now: ms(520), since: ms(100), returned: ms(490), armed: ms(480)}, wait, 570},
		{"armed late", sight{now: ms(600), since: ms(100), returned: ms(440), armed: ms(590)}, wait, 630},
		{"armed, quiet is over", sight{now: ms(520), since: ms(100), returned: ms(440), armed: ms(480)}, finish, 0},
		{"launched before it was armed", sight{now: ms(500), since: ms(100), returned: ms(460), launched: true}, arm, 0},
	} {
		got, again := c.s.decide(quiet)
		if got != c.want || again != ms(c.again) {
			t.Errorf("%s: %v, again at %v; want %v, %v", c.name, got, again, c.want, ms(c.again))
		}
	}
}
