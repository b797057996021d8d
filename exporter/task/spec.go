package task

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The labels that a user writes on a container.
const (
	LabelPrefix    = "laxity."
	LabelDeadline  = "laxity.deadline"
	LabelGPUMemory = "laxity.gpu-memory"
	LabelPause     = "laxity.pause"
	LabelClass     = "laxity.class"
	LabelRelease   = "laxity.release"
	LabelShare     = "laxity.share"
	LabelGang      = "laxity.gang"
)

// Class says what kind of work a container does.
type Class string

// The classes.
const (
	ClassDeadline Class = "deadline" // the default with a deadline
	ClassBatch    Class = "batch"    // the default without
)

// Release says what one task of a container is.
type Release string

// The kinds of task.
const (
	ReleaseProcess Release = "process" // a process, from its first context to its end
	ReleaseBusy    Release = "busy"    // each busy interval of a process
)

// Spec is what a container's labels ask for.
type Spec struct {
	// Managed: it carries at least one of KnownLabels, valid or not. Only a managed container
	// is ever acted on; the others are observed.
	Managed bool `json:"managed"`
	// Deadline is relative to the start of each task, seconds; 0 is none.
	Deadline Seconds `json:"deadline_seconds,omitempty"`
	// GPUMemory is the GPU memory it may hold, bytes, contexts included; 0 is
	// no limit.
	GPUMemory uint64 `json:"gpu_memory_bytes,omitempty"`
	// Share is the part of each of its GPUs' time that it is sure of while others want it,
	// above 0 and at most 1; 0 is no share. Time that it leaves unused goes to others.
	Share float64 `json:"share_ratio,omitempty"`
	// NeverPause: it is never held, paused, swapped or refused memory.
	NeverPause bool `json:"never_pause,omitempty"`
	// Gang names the job of which this container is one part; empty: none. See Container.GangID.
	Gang    string  `json:"gang,omitempty"`
	Class   Class   `json:"class"`
	Release Release `json:"release"`
}

// InvalidLabel is a laxity.* label that could not be read. Hint says what to
// write instead.
type InvalidLabel struct {
	Label string `json:"label"`
	Value string `json:"value"`
	Hint  string `json:"hint"`
}

// Error implements error.
func (e InvalidLabel) Error() string {
	return fmt.Sprintf("label %s=%q is invalid: %s", e.Label, e.Value, e.Hint)
}

// Limits bound what a container may claim of others. The zero value bounds nothing.
type Limits struct {
	// MinDeadline is the shortest relative deadline; 0 is any.
	MinDeadline time.Duration
	// MaxShare is the largest share of a GPU's time, above 0 and at most 1; 0 is any.
	MaxShare float64
}

// ErrLimit means that a claim is beyond the limits.
var ErrLimit = errors.New("beyond the limit of this node")

// Validate says what is wrong and what to write instead.
func (l Limits) Validate() error {
	if l.MinDeadline < 0 || !(l.MaxShare >= 0 && l.MaxShare <= 1) {
		return fmt.Errorf("deadline.min is %v and share.max %v; write a duration from 0 on, and a share above 0 and up to 1", l.MinDeadline, l.MaxShare)
	}
	return nil
}

// CheckDeadline returns an error that wraps ErrLimit for a deadline that is too
// short; 0 is none.
func (l Limits) CheckDeadline(d time.Duration) error {
	if d > 0 && d < l.MinDeadline {
		return fmt.Errorf("%w: a deadline of %v is shorter than %v (--deadline.min)", ErrLimit, d, l.MinDeadline)
	}
	return nil
}

// CheckShare returns an error that wraps ErrLimit for a share that is too large; 0 is none.
func (l Limits) CheckShare(share float64) error {
	if l.MaxShare > 0 && share > l.MaxShare {
		return fmt.Errorf("%w: a share of %.4g %% is larger than %.4g %% (--share.max)", ErrLimit, 100*share, 100*l.MaxShare)
	}
	return nil
}

// ParseLabels is Limits.ParseLabels without limits.
func ParseLabels(labels map[string]string) (Spec, []InvalidLabel) {
	return Limits{}.ParseLabels(labels)
}

// Bounds of what is said of labels that cannot be read. Whoever writes labels must not make what
// is said of them too large for those who read it.
const (
	maxLabel   = 100 // bytes of a label, and of its value; valid ones are shorter
	maxInvalid = 8   // labels of a container
)

// ParseLabels reads the laxity.* labels among a container's labels. A label that is invalid
// or beyond the limits takes its safe value (no deadline, no limit, no share, no gang, never paused,
// the default class and release). One that is not known counts for nothing: a person who wrote laxity.puase=never must
// not get a container that is acted on. The list has these labels, sorted: eight of them, and one entry that says
// how many more there are.
func (l Limits) ParseLabels(labels map[string]string) (Spec, []InvalidLabel) {
	s := Spec{Release: ReleaseProcess}
	var invalid []InvalidLabel
	for label, value := range labels {
		if !strings.HasPrefix(label, LabelPrefix) {
			continue
		}
		s.Managed = s.Managed || slices.Contains(KnownLabels, label)
		if err := l.read(&s, label, value); err != nil {
			invalid = append(invalid, InvalidLabel{Label: short(label), Value: short(value), Hint: err.Error()})
		}
	}
	if s.Class == "" {
		s.Class = ClassBatch
		if s.Deadline > 0 {
			s.Class = ClassDeadline
		}
	}
	slices.SortFunc(invalid, func(a, b InvalidLabel) int {
		return cmp.Or(strings.Compare(a.Label, b.Label), strings.Compare(a.Value, b.Value))
	})
	if more := len(invalid) - maxInvalid; more > 0 {
		invalid = append(invalid[:maxInvalid], InvalidLabel{Label: LabelPrefix + "…", Hint: fmt.Sprintf("%d more labels cannot be read", more)})
	}
	return s, invalid
}

// short cuts a text at maxLabel.
func short(text string) string {
	if len(text) <= maxLabel {
		return text
	}
	return strings.ToValidUTF8(text[:maxLabel], "") + "…"
}

// read sets what one label says.
func (l Limits) read(s *Spec, label, value string) error {
	if len(label) > maxLabel || len(value) > maxLabel {
		s.NeverPause = s.NeverPause || label == LabelPause
		return fmt.Errorf("a label and its value have %d bytes at most", maxLabel)
	}
	switch label {
	case LabelDeadline:
		d, err := ParseDeadline(value)
		if err == nil {
			err = l.CheckDeadline(d)
		}
		if err != nil {
			return err
		}
		s.Deadline = SecondsOf(d)
	case LabelGPUMemory:
		n, err := ParseBytes(value)
		if err != nil {
			return err
		}
		s.GPUMemory = n
	case LabelShare:
		n, err := ParseShare(value)
		if err == nil {
			err = l.CheckShare(n)
		}
		if err != nil {
			return err
		}
		s.Share = n
	case LabelPause:
		s.NeverPause = value != "allow"
		if value != "allow" && value != "never" {
			return errors.New("write allow or never; until then it counts as never")
		}
	case LabelGang:
		if !gangName.MatchString(value) {
			return errors.New("write a name of 1 to 63 letters, digits, '.', '_' and '-'; until then it is in no gang")
		}
		s.Gang = value
	case LabelClass:
		if c := Class(value); c != ClassDeadline && c != ClassBatch {
			return errors.New("write deadline or batch")
		}
		s.Class = Class(value)
	case LabelRelease:
		if r := Release(value); r != ReleaseProcess && r != ReleaseBusy {
			return errors.New("write process or busy")
		}
		s.Release = Release(value)
	default:
		return errors.New("no such label; known are " + strings.Join(KnownLabels, ", "))
	}
	return nil
}

// KnownLabels lists every label that ParseLabels reads.
var KnownLabels = []string{LabelClass, LabelDeadline, LabelGang, LabelGPUMemory, LabelPause, LabelRelease, LabelShare}

// MaxDeadline is the longest relative deadline: a hundred years, well inside
// what time.Duration can add to a date.
const MaxDeadline = 100 * 365 * 24 * time.Hour

// ParseDeadline reads a relative deadline: a Go duration (9s, 250ms, 1h30m) or
// a bare number of seconds, as P1's `-dl N`. It must be above 0 and at most
// MaxDeadline.
func ParseDeadline(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		n, nerr := strconv.ParseFloat(text, 64)
		if nerr != nil || math.IsNaN(n) {
			return 0, fmt.Errorf("%q is not a deadline: write a duration such as 9s or 250ms, or a number of seconds", text)
		}
		d = Seconds(n).Duration()
	}
	if d <= 0 {
		return 0, fmt.Errorf("%q is not a deadline: it must be longer than 0", text)
	}
	if d > MaxDeadline {
		return 0, fmt.Errorf("%q is not a deadline: it is longer than 100 years", text)
	}
	return d, nil
}

// ParseShare reads a share of a GPU's time, in percent: 30% or 12.5 %. It must be above 0 and
// at most 100 %; the result is a ratio. It refuses a number without the sign: some readers
// would take 0.3 for 30 %, others for 0.3 %.
func ParseShare(text string) (float64, error) {
	number, ok := strings.CutSuffix(strings.TrimSpace(text), "%")
	n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if !ok || err != nil {
		return 0, fmt.Errorf("%q is not a share: write, for example, 30%%", text)
	}
	if !(n > 0 && n <= 100) { // so that NaN is refused
		return 0, fmt.Errorf("%q is not a share: it must be above 0 %% and at most 100 %%", text)
	}
	return n / 100, nil
}

// ParseBytes reads an amount of memory: a number with an optional unit B, K, M,
// G, T, KiB … TiB or KB … TB. Every unit is a power of 1024, as in
// `docker run --memory`. It must be above 0.
func ParseBytes(text string) (uint64, error) {
	fail := func() (uint64, error) {
		return 0, fmt.Errorf("%q is not an amount of memory: write, for example, 4GiB or 512MiB", text)
	}
	t := strings.ToLower(strings.TrimSpace(text))
	i := strings.IndexFunc(t, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	number, unit := t, ""
	if i >= 0 {
		number, unit = t[:i], strings.TrimSpace(t[i:])
	}
	shift, ok := map[string]uint{
		"": 0, "b": 0,
		"k": 10, "kb": 10, "kib": 10,
		"m": 20, "mb": 20, "mib": 20,
		"g": 30, "gb": 30, "gib": 30,
		"t": 40, "tb": 40, "tib": 40,
	}[unit]
	if !ok {
		return fail()
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || n <= 0 {
		return fail()
	}
	bytes := n * float64(uint64(1)<<shift)
	if bytes < 1 || bytes >= 1<<63 {
		return fail()
	}
	return uint64(bytes), nil
}
