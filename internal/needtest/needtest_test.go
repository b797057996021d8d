package needtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// spy is a test that notes how it ended.
type spy struct {
	testing.TB
	ended string
}

func (s *spy) Helper()                      {}
func (s *spy) Skip(args ...any)             { s.end("skip: " + fmt.Sprint(args...)) }
func (s *spy) Fatal(args ...any)            { s.end("fatal: " + fmt.Sprint(args...)) }
func (s *spy) Fatalf(f string, args ...any) { s.end("fatal: " + fmt.Sprintf(f, args...)) }
func (s *spy) end(how string) {
	s.ended = how
	panic(s)
}

func TestSkip(t *testing.T) {
	for _, tc := range []struct{ required, want string }{
		{"", "skip: no engine: gone"},
		{"bpf", "skip: no engine: gone"},
		{"bpf,docker", "fatal: LAXITY_REQUIRE says that docker is here: no engine: gone"},
		{"all but gpu", "fatal: LAXITY_REQUIRE says that docker is here: no engine: gone"},
		{"all but gpu,docker", "skip: no engine: gone"},
		{"dokcer", `fatal: LAXITY_REQUIRE names "dokcer"`},
	} {
		t.Setenv(Variable, tc.required)
		for _, skip := range []func(testing.TB){
			func(tb testing.TB) { Docker.Skip(tb, "no engine:", "gone") },
			func(tb testing.TB) { Docker.Skipf(tb, "no engine: %s", "gone") },
		} {
			s := &spy{}
			func() {
				defer func() {
					if r := recover(); r != s {
						t.Errorf("LAXITY_REQUIRE=%q: the test went on (%v)", tc.required, r)
					}
				}()
				skip(s)
			}()
			if !strings.HasPrefix(s.ended, tc.want) {
				t.Errorf("LAXITY_REQUIRE=%q: %s, want %s", tc.required, s.ended, tc.want)
			}
		}
	}
}

func TestAllIsSorted(t *testing.T) {
	if !slices.IsSorted(All) || len(slices.Compact(slices.Clone(All))) != len(All) {
		t.Errorf("not in order, or twice: %v", All)
	}
}
