package workload

import (
	"strings"
	"testing"
	"time"
)

func TestEvents(t *testing.T) {
	const output = `{"time":1795262644.296140,"event":"start","pid":7,"n":64}
some other line
{"time":1795262645.000001,"event":"launch","pid":7,"task":2}
`
	var got []Event
	for e, err := range Events(strings.NewReader(output)) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e)
	}
	if len(got) != 2 || got[0].Name != "start" || got[0].PID != 7 || got[1].Task != 2 {
		t.Fatalf("got %+v", got)
	}
	if want := time.UnixMicro(1795262644296140); !got[0].Time.Equal(want) {
		t.Errorf("time %v, want %v to the microsecond", got[0].Time, want)
	}
}

func TestEventsEndWithTheFirstError(t *testing.T) {
	count := 0
	for _, err := range Events(strings.NewReader("{\"time\":\n{\"event\":\"start\"}\n")) {
		count++
		if err == nil || !strings.Contains(err.Error(), `{\"time\":`) {
			t.Errorf("want an error that shows the line, got %v", err)
		}
	}
	if count != 1 {
		t.Errorf("%d events, want the error alone", count)
	}
}
