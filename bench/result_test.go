package bench

import (
	"io/fs"
	"math"
	"os"
	"testing"
)

func TestQuantile(t *testing.T) {
	for _, tc := range []struct {
		values []float64
		q      float64
		want   float64
	}{
		{[]float64{3, 1, 2}, 0.5, 2},
		{[]float64{1, 2, 3, 4}, 0.5, 2.5},
		{[]float64{5}, 0.99, 5},
		{[]float64{1, math.NaN(), 3}, 0.5, 2},
		{[]float64{1, 2, 3, 4, 5}, 1, 5},
		{[]float64{1, 2, 3, 4, 5}, 0, 1},
	} {
		if got := Quantile(tc.values, tc.q); got != tc.want {
			t.Errorf("Quantile(%v, %v) = %v, want %v", tc.values, tc.q, got, tc.want)
		}
	}
	if got := Quantile(nil, 0.5); !math.IsNaN(got) {
		t.Errorf("Quantile of nothing = %v, want NaN", got)
	}
}

// What is no number is no sample.
func TestP99NeedsSamples(t *testing.T) {
	samples := make([]float64, FewestForP99)
	for i := range samples {
		samples[i] = float64(i + 1)
	}
	if got := P99(append(samples, math.NaN())); math.Abs(got-99.01) > 1e-9 {
		t.Errorf("of 1 to 100: %v", got)
	}
	samples[0] = math.NaN()
	if got := P99(samples); !math.IsNaN(got) {
		t.Errorf("of 99: %v", got)
	}
}

func TestResultRoundTrip(t *testing.T) {
	dir := t.TempDir()
	r := Result{Name: "x", Seed: 7, Rows: []Row{{"way": "laxity", "error_s": 0.25, "ok": true, "n": 3}}}
	if _, err := r.Write(dir); err != nil {
		t.Fatal(err)
	}
	back, err := ReadResult(osDir(dir), "x.json")
	if err != nil {
		t.Fatal(err)
	}
	row := back.Rows[0]
	if row.Str("way") != "laxity" || row.Num("error_s") != 0.25 || row.Num("ok") != 1 || row.Num("n") != 3 || !math.IsNaN(row.Num("absent")) {
		t.Errorf("row = %v", row)
	}
}

func osDir(dir string) fs.FS { return os.DirFS(dir) }
