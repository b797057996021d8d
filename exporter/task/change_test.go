package task_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/laxity/laxity/exporter/task"
)

func TestParseChange(t *testing.T) {
	for _, tt := range []struct{ setting, text, json, words, err string }{
		{"deadline", " 9s ", `{"deadline":"9s"}`, "deadline 9s, was 1s", ""},
		{"deadline", "1.5", `{"deadline":"1.5s"}`, "deadline 1.5s, was 1s", ""},
		{"deadline", "none", `{"deadline":null}`, "deadline back to its label's, was 1s", ""},
		{"share", "30%", `{"share":"30%"}`, "share 30%, was none", ""},
		{"share", "29 %", `{"share":"29%"}`, "share 29%, was none", ""},
		{"share", "none", `{"share":null}`, "share back to its label's, was none", ""},
		{"share", "0.3", "", "", "write, for example, 30%"},
		{"share", "101%", "", "", "at most 100 %"},
		{"deadline", "30%", "", "", "write a duration"},
		{"class", "batch", "", "", "known are deadline and share"},
	} {
		c, err := task.ParseChange(tt.setting, tt.text)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s %s: %v", tt.setting, tt.text, err)
			}
			continue
		}
		text, _ := json.Marshal(c)
		if words := c.Words(task.Spec{Deadline: 1}); err != nil || string(text) != tt.json || words != tt.words {
			t.Errorf("%s %s: %s, %q, %v", tt.setting, tt.text, text, words, err)
		}
	}
}

// What is sent is what was meant, to a billionth.
func TestChangeTravels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c task.Change
		if rapid.Bool().Draw(t, "a deadline") {
			d := time.Duration(rapid.Int64Range(0, int64(task.MaxDeadline)).Draw(t, "deadline"))
			c.Deadline = &d
		}
		if c.Deadline == nil || rapid.Bool().Draw(t, "a share") {
			s := rapid.Float64Range(0, 1).Draw(t, "share")
			c.Share = &s
		}
		text, err := json.Marshal(c)
		var got task.Change
		if err = errors.Join(err, json.Unmarshal(text, &got)); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if (got.Deadline == nil) != (c.Deadline == nil) || got.Deadline != nil && *got.Deadline != *c.Deadline {
			t.Fatalf("deadline of %s", text)
		}
		if (got.Share == nil) != (c.Share == nil) || got.Share != nil && (*got.Share-*c.Share > 1e-9 || *c.Share-*got.Share > 1e-9) {
			t.Fatalf("share of %s: %v", text, *got.Share)
		}
	})
}
