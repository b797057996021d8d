package task

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The settings of a container that can be changed while it runs.
const (
	SettingDeadline = "deadline"
	SettingShare    = "share"
)

// Change is a change of a container's settings while it runs. A nil field stays as it is; 0
// goes back to what the label says.
type Change struct {
	// Deadline is relative to the start of each task, above 0 and at most MaxDeadline.
	Deadline *time.Duration
	// Share is the part of each of its GPUs' time, above 0 and at most 1.
	Share *float64
}

// ParseChange reads the value of one setting as a person writes it: a deadline as
// ParseDeadline does, a share as ParseShare does, or none.
func ParseChange(setting, text string) (c Change, err error) {
	text = strings.TrimSpace(text)
	none := text == "none" || text == ""
	switch setting {
	case SettingDeadline:
		c.Deadline = new(time.Duration)
		if !none {
			*c.Deadline, err = ParseDeadline(text)
		}
	case SettingShare:
		c.Share = new(float64)
		if !none {
			*c.Share, err = ParseShare(text)
		}
	default:
		err = fmt.Errorf("no such setting %q; known are deadline and share", setting)
	}
	return c, err
}

// CheckChange returns an error that wraps ErrLimit for a deadline that is too short or a share that is too large.
func (l Limits) CheckChange(c Change) error {
	var errs []error
	if c.Deadline != nil {
		errs = append(errs, l.CheckDeadline(*c.Deadline))
	}
	if c.Share != nil {
		errs = append(errs, l.CheckShare(*c.Share))
	}
	return errors.Join(errs...)
}

// changeJSON is a Change as it travels: an absent field stays, null goes back to the label.
type changeJSON struct {
	Deadline json.RawMessage `json:"deadline,omitempty"`
	Share    json.RawMessage `json:"share,omitempty"`
}

// MarshalJSON implements json.Marshaler: {"deadline":"5s","share":"30%"}; null goes back to
// the label.
func (c Change) MarshalJSON() ([]byte, error) {
	var out changeJSON
	if c.Deadline != nil {
		out.Deadline = textOrNull(c.Deadline.String(), *c.Deadline != 0)
	}
	if c.Share != nil {
		out.Share = textOrNull(strconv.FormatFloat(100**c.Share, 'g', 12, 64)+"%", *c.Share != 0)
	}
	return json.Marshal(out)
}

func textOrNull(text string, set bool) json.RawMessage {
	if !set {
		return json.RawMessage("null")
	}
	return json.RawMessage(strconv.Quote(text))
}

// UnmarshalJSON implements json.Unmarshaler. It reads what MarshalJSON writes; a deadline can
// be a number of seconds, too. It refuses an empty change and unknown fields.
func (c *Change) UnmarshalJSON(text []byte) error {
	// A map, because a RawMessage in a struct does not tell null from absent.
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return err
	}
	*c = Change{}
	for name, value := range fields {
		one, err := changeOf(name, value)
		if err != nil {
			return err
		}
		if one.Deadline != nil {
			c.Deadline = one.Deadline
		}
		if one.Share != nil {
			c.Share = one.Share
		}
	}
	if *c == (Change{}) {
		return errors.New("it changes nothing: it has neither a deadline nor a share")
	}
	return nil
}

func changeOf(name string, value json.RawMessage) (Change, error) {
	text := string(value)
	switch {
	case text == "null":
		return ParseChange(name, "none")
	case text[0] == '"':
		if err := json.Unmarshal(value, &text); err != nil {
			return Change{}, err
		}
		if text == "" || text == "none" {
			return Change{}, fmt.Errorf("%s is %q; send null to go back to the label", name, text)
		}
	}
	return ParseChange(name, text)
}

// Words say the change of a container with these settings: deadline 5s, was 9s.
func (c Change) Words(was Spec) string {
	var words []string
	say := func(setting, now, before string, set bool) {
		if !set {
			now = "back to its label's"
		}
		words = append(words, fmt.Sprintf("%s %s, was %s", setting, now, before))
	}
	if c.Deadline != nil {
		say(SettingDeadline, DeadlineWords(SecondsOf(*c.Deadline)), DeadlineWords(was.Deadline), *c.Deadline != 0)
	}
	if c.Share != nil {
		say(SettingShare, ShareWords(*c.Share), ShareWords(was.Share), *c.Share != 0)
	}
	return strings.Join(words, "; ")
}

// DeadlineWords writes a relative deadline as a person reads it: 9s, or none for 0.
func DeadlineWords(d Seconds) string {
	if d <= 0 {
		return "none"
	}
	return d.Duration().String()
}

// ShareWords writes a share as a person reads it: 30%, or none for 0.
func ShareWords(share float64) string {
	if share <= 0 {
		return "none"
	}
	return strconv.FormatFloat(100*share, 'g', 4, 64) + "%"
}
