package zoo

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"github.com/laxity/laxity/bench"
)

func TestUnlabelledPairs(t *testing.T) {
	var rows []bench.Row
	for _, with := range []float64{1, 2, 4} {
		rows = append(rows, bench.Row{"way": alone, "with": with, "without": 2.0, "ratio": with / 2})
	}
	want := [][]string{{"UNLABELLED", "PAIRS", "S WITH LAXITY", "S WITHOUT", "RATIO", "25–75 %"}, {alone, "3", "2", "2", "1", "0.750–1.500"}}
	if got := unlabelledTable(rows); !reflect.DeepEqual(got, want) {
		t.Errorf("table %q, want %q", got, want)
	}
	if f := unlabelledFigures(rows)[0]; f.Name != "unlabelled_alone_ratio" || f.Value != 1 || f.Runs != 3 {
		t.Errorf("first figure %+v, want unlabelled_alone_ratio 1 of 3 runs", f)
	}
}

func TestUnlabelledPlacesAreKnown(t *testing.T) {
	_, err := runUnlabelled(context.Background(), bench.Env{Args: map[string]string{"in": "there"}})
	if err == nil || !strings.Contains(err.Error(), "alone, beside or both") {
		t.Errorf("error %v, want one that names the places", err)
	}
}
