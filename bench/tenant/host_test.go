package tenant

import (
	"slices"
	"testing"
)

func TestTheLastValueOfAVariableCounts(t *testing.T) {
	got := once([]string{"A=1", "B=2", "AB=3", "A=4"})
	if want := []string{"B=2", "AB=3", "A=4"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
