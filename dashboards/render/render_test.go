package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// fake is a Prometheus that has the same two series for every query, and a moment without.
func fake(t *testing.T, end time.Time) string {
	t.Helper()
	labels := []map[string]string{
		{"node": "a", "gpu": "GPU-1", "index": "0", "name": "H200 <&>", "container": "web", "kind": "x"},
		{"node": "a", "gpu": "GPU-2", "index": "1", "name": "H200", "container": "batch", "kind": "y"},
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var result []map[string]any
		for i, l := range labels {
			var values [][2]any
			for at := 0; at < 60; at += 2 {
				if at < 20 || at > 30 {
					values = append(values, [2]any{float64(end.Unix() - 60 + int64(at)), strconv.Itoa(i + at%3)})
				}
			}
			one := map[string]any{"metric": l}
			if strings.HasSuffix(r.URL.Path, "query_range") {
				one["values"] = values
			} else {
				one["value"] = values[len(values)-1]
			}
			result = append(result, one)
		}
		kind := map[bool]string{true: "matrix", false: "vector"}[strings.HasSuffix(r.URL.Path, "query_range")]
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": map[string]any{"resultType": kind, "result": result}}); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// Every panel is drawn, with the names and numbers that were answered, for each theme and width.
func TestPages(t *testing.T) {
	end, out := time.Unix(1_800_000_000, 0), t.TempDir()
	if err := render(fake(t, end), time.Minute, end, nil, []int{1280, 390}, out); err != nil {
		t.Fatal(err)
	}
	for name, wants := range map[string][]string{
		"gpu-dark-1280.html":   {`class="dark"`, "Framebuffer memory", "W</text>", "Whose work"},
		"node-light-390.html":  {`class="light"`, "Who is held, and why", "another one&#39;s turn"},
		"fleet-light-390.html": {"Node ranking", "Free on its best GPU"},
	} {
		content, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !strings.Contains(string(content), want) {
				t.Errorf("%s has no %q", name, want)
			}
		}
		for _, not := range []string{"NaN", "No data", "%!", "Inf", "H200 <&>"} {
			if strings.Contains(string(content), not) {
				t.Errorf("%s has %q", name, not)
			}
		}
	}
}

func TestShow(t *testing.T) {
	zero := 0
	tests := []struct {
		field field
		value float64
		want  string
	}{
		{field{Unit: "percentunit"}, 0.9676, "96.8%"}, {field{Unit: "bytes"}, 3 << 30, "3 GiB"}, {field{Unit: "watt"}, 1050, "1.05 kW"},
		{field{Unit: "hertz"}, 1.98e9, "1.98 GHz"}, {field{Unit: "celsius"}, 73, "73 °C"}, {field{Unit: "joule"}, 136e3, "136 kJ"},
		{field{Unit: "s"}, 0.0071, "7.1 ms"}, {field{Unit: "s"}, 290, "4.83 mins"}, {field{Unit: "s"}, 0, "0 s"}, {field{Unit: "s"}, -1.5, "-1.5 s"},
		{field{Unit: "none"}, 1.4, "1.4"}, {field{Unit: "none", Decimals: &zero}, 1.4, "1"}, {field{Unit: "bool_yes_no"}, 1, "Yes"},
		{field{Mappings: []mapping{{map[string]look{"2": {Text: "held"}}}}}, 2, "held"},
	}
	for _, tt := range tests {
		if got := show(tt.field, tt.value); got != tt.want {
			t.Errorf("%v %s is shown as %q, want %q", tt.value, tt.field.Unit, got, tt.want)
		}
	}
}

// A line is broken where points are missing.
func TestParts(t *testing.T) {
	d := &drawing{from: time.Unix(0, 0), to: time.Unix(60, 0)}
	at := func(s ...int64) (all []point) {
		for _, x := range s {
			all = append(all, point{at: time.Unix(x, 0)})
		}
		return all
	}
	parts := d.parts(at(1, 2, 3, 20, 21))
	if len(parts) != 2 || len(parts[0]) != 3 || len(parts[1]) != 2 {
		t.Errorf("%v", parts)
	}
}
