package bench

import (
	"bytes"
	"compress/gzip"
	"io"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// What is read is what was written, whatever the texts look like, and the same rows give the
// same bytes.
func TestRowsRoundTrip(t *testing.T) {
	text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "1", "1.50", "true", "null", `"x"`, "[", "a,b", "a\r\nb", " 7 ", "NaN", "laxity"}))
	value := rapid.OneOf(
		rapid.Map(text, func(s string) any { return s }),
		rapid.Map(rapid.Float64Range(-1e300, 1e300), func(f float64) any { return f }),
		rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.Map(rapid.SliceOf(text), func(list []string) any {
			out := []any{}
			for _, s := range list {
				out = append(out, s)
			}
			return out
		}),
		rapid.Just[any](nil),
	)
	row := rapid.Map(rapid.MapOfN(rapid.StringMatching(`[a-z_]{1,3}`), value, 1, 5), func(m map[string]any) Row { return m })
	rapid.Check(t, func(t *rapid.T) {
		rows := rapid.SliceOfN(row, 1, 6).Draw(t, "rows")
		var first, second bytes.Buffer
		if err := writeRows(&first, rows); err != nil {
			t.Fatal(err)
		}
		if err := writeRows(&second, rows); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first.Bytes(), second.Bytes()) {
			t.Fatal("the same rows gave other bytes")
		}
		back, err := readRows(&first)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(back, rows) {
			t.Fatalf("wrote %#v, read %#v", rows, back)
		}
	})
}

// A person can read the table, and so can whatever reads CSV.
func TestRowsAreATable(t *testing.T) {
	var b bytes.Buffer
	if err := writeRows(&b, []Row{{"way": "laxity", "error_s": 0.25, "n": 3}, {"way": "1", "ok": true}}); err != nil {
		t.Fatal(err)
	}
	packed, err := gzip.NewReader(&b)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(packed)
	if err != nil {
		t.Fatal(err)
	}
	if want := "error_s,n,ok,way\n0.25,3,,laxity\n,,true,\"\"\"1\"\"\"\n"; string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestBadRows(t *testing.T) {
	if err := writeRows(io.Discard, []Row{{"a": 1}, {}}); err == nil || !strings.Contains(err.Error(), "row 1 is empty") {
		t.Errorf("an empty row: %v", err)
	}
	if err := writeRows(io.Discard, []Row{{"a": func() {}}}); err == nil {
		t.Error("a function was written")
	}
	var b bytes.Buffer
	if err := writeRows(&b, []Row{{"a": "x"}, {"a": "y"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := readRows(bytes.NewReader(b.Bytes()[:b.Len()-4])); err == nil {
		t.Error("a file that was cut off was read")
	}
}
