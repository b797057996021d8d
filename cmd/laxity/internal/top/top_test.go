package top_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/cmd/laxity/internal/top"
	"github.com/laxity/laxity/exporter/task"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// fake notes what was asked.
type fake struct {
	asked []string
	err   error
	why   string // in place of what was asked
}

func (f *fake) did(what string) (string, error) {
	f.asked = append(f.asked, what)
	return "did " + what, f.err
}
func (f *fake) Pause(_ context.Context, c string) (string, error)   { return f.did("pause " + c) }
func (f *fake) Release(_ context.Context, c string) (string, error) { return f.did("release " + c) }
func (f *fake) Change(_ context.Context, c string, change task.Change) (string, error) {
	return f.did(c + ": " + change.Words(task.Spec{}))
}
func (f *fake) Why(_ context.Context, c string) (string, error) {
	text, err := f.did("why " + c)
	return cmp.Or(f.why, text), err
}

// person is somebody at the screen.
type person struct {
	*testing.T
	model tea.Model
	node  *fake
	now   time.Time
}

func sit(t *testing.T, width, height int, facts top.Facts) *person {
	p := &person{T: t, node: &fake{}, now: t0}
	p.model = top.New(top.Options{Node: p.node, Now: func() time.Time { return p.now }})
	p.send(tea.WindowSizeMsg{Width: width, Height: height})
	p.send(facts)
	return p
}

func (p *person) send(msg tea.Msg) {
	p.Helper()
	m, cmd := p.model.Update(msg)
	p.model = m
	if cmd == nil {
		return
	}
	if _, isKey := msg.(tea.KeyMsg); !isKey {
		return // the clock
	}
	if next := cmd(); next != nil {
		p.model, _ = p.model.Update(next)
	}
}

// press types keys, a word each; a word that is no name of a key is typed letter by letter.
func (p *person) press(keys string) {
	p.Helper()
	named := map[string]tea.KeyType{"enter": tea.KeyEnter, "esc": tea.KeyEsc, "up": tea.KeyUp, "down": tea.KeyDown, "pgdown": tea.KeyPgDown, "home": tea.KeyHome, "end": tea.KeyEnd}
	for _, k := range strings.Fields(keys) {
		if kind, ok := named[k]; ok {
			p.send(tea.KeyMsg{Type: kind})
			continue
		}
		for _, r := range k {
			p.send(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune{r}})
		}
	}
}

func (p *person) sees(texts ...string) {
	p.Helper()
	for _, text := range texts {
		if !strings.Contains(p.model.View(), text) {
			p.Errorf("does not see %q in\n%s", text, p.model.View())
		}
	}
}

func (p *person) seesNot(texts ...string) {
	p.Helper()
	for _, text := range texts {
		if strings.Contains(p.model.View(), text) {
			p.Errorf("sees %q in\n%s", text, p.model.View())
		}
	}
}

// many are containers c00, c01 … of which the first is the most urgent.
func many(n int) top.Facts {
	s := &task.Snapshot{Health: task.Health{DeviceUp: true, EngineUp: true},
		GPUs: []task.GPU{{UUID: "GPU-1234", Name: "H200", MemoryTotal: 141 << 30, Utilization: 0.5}, {UUID: "GPU-5678", Index: 1, Name: "H200", MemoryTotal: 141 << 30}}}
	for i := range n {
		id := fmt.Sprintf("c%02d", i)
		gpu := s.GPUs[i%2].UUID
		s.Containers = append(s.Containers, task.Container{ID: id, Name: id, Image: "image" + id, Spec: task.Spec{Managed: true}, Started: t0.Add(-time.Hour), Processes: []task.Process{{PID: 4000 + i}},
			MemoryUsed: map[string]uint64{gpu: uint64(i+1) << 20}})
		s.Tasks = append(s.Tasks, task.Task{ContainerID: id, State: task.Running, GPUs: []string{gpu}, Deadline: t0.Add(time.Duration(i+1) * time.Minute)})
	}
	s.Ended = []task.Task{{ContainerID: "c00", State: task.Ended, Deadline: t0, End: &task.Mark{Time: t0.Add(-1)}}, {ContainerID: "c00", State: task.Ended, Deadline: t0, End: &task.Mark{Time: t0.Add(1)}}}
	s.Containers[0].Invalid = []task.InvalidLabel{{Label: "laxity.share", Value: "much", Hint: "write 30%"}}
	return top.Facts{Snapshot: s, State: &state.State{Containers: []state.Container{{ID: "c00", Waits: "waits for c01 on GPU GPU-5678"}}}}
}

func TestItShowsTheMostUrgentAndScrolls(t *testing.T) {
	p := sit(t, 100, 20, many(60))
	if n := strings.Count(p.model.View(), "\n"); n != 19 {
		t.Errorf("%d lines on a screen of 20", n+1)
	}
	p.sees("GPU 0  H200  use  50%", "GPU 1", "> c00", "c12", "60 rows, by urgency, 47 more below", "1/2", "1h", "imagec00")
	p.seesNot("c13", "GPU-1234")
	p.press("down down")
	p.sees("> c02")
	p.press("end")
	p.sees("> c59", "c47")
	p.seesNot("c46")
	p.press("home pgdown")
	p.sees("> c13")
}

// The selected container stays selected while others overtake it.
func TestTheSelectedStaysSelected(t *testing.T) {
	facts := many(6)
	p := sit(t, 100, 24, facts)
	p.press("down")
	late := *facts.Snapshot
	late.Tasks = append([]task.Task(nil), late.Tasks...)
	late.Tasks[5].Deadline = t0
	p.send(top.Facts{Snapshot: &late})
	p.sees("> c01")
	gone := late
	gone.Containers, gone.Tasks = gone.Containers[2:], gone.Tasks[2:]
	p.send(top.Facts{Snapshot: &gone})
	p.press("p")
	if len(p.node.asked) != 1 || !strings.HasPrefix(p.node.asked[0], "pause c0") || p.node.asked[0] == "pause c01" {
		t.Errorf("asked %q after its container went", p.node.asked)
	}
}

// Of many decisions the latest are seen.
func TestALongAnswerEndsWithTheLatest(t *testing.T) {
	p := sit(t, 100, 12, many(3))
	p.node.why = "c00 waits for c01"
	for i := range 30 {
		p.node.why += fmt.Sprintf("\ndecision %d.", i)
	}
	p.press("enter")
	p.sees("c00 waits for c01\n…\ndecision 22.", "decision 29.\n\nany key goes back")
	if n := strings.Count(p.model.View(), "\n"); n != 11 {
		t.Errorf("%d lines on a screen of 12", n+1)
	}
}

func TestKeysAct(t *testing.T) {
	p := sit(t, 100, 24, many(3))
	p.press("down p")
	p.sees("did pause c01")
	p.press("r")
	p.sees("did release c01")
	p.press("d")
	p.sees("deadline of c01")
	p.press("5s enter")
	p.sees("did c01: deadline 5s, was none")
	p.press("%")
	p.sees("share of c01")
	p.press("30% enter")
	p.sees("did c01: share 30%, was none")
	p.press("% 30 enter") // without its sign: nobody is asked
	p.sees("is not a share")
	p.press("d 9s esc") // thought better of it
	p.press("enter")
	p.sees("did why c01", "any key goes back")
	p.press("q")
	p.sees("> c01")
	p.node.err = errors.New("a token is needed")
	p.press("p")
	p.sees("a token is needed")
	want := "pause c01, release c01, c01: deadline 5s, was none, c01: share 30%, was none, why c01, pause c01"
	if got := strings.Join(p.node.asked, ", "); got != want {
		t.Errorf("asked %q, want %q", got, want)
	}
}

// Whoever reads a text may leave it with any key, which does nothing else.
func TestAnyKeyGoesBackOnly(t *testing.T) {
	for _, page := range []string{"?", "enter"} {
		for _, k := range []string{"q", "esc", "enter", "p", "r", "d", "%", "a", "s", "i", "/", "?", "down"} {
			t.Run(page+" "+k, func(t *testing.T) {
				p := sit(t, 100, 24, many(3))
				table := p.model.View()
				p.press(page)
				p.sees("any key goes back")
				asked := len(p.node.asked)
				p.press(k)
				if p.model.View() != table || len(p.node.asked) != asked {
					t.Errorf("asked %q, sees\n%s", p.node.asked[asked:], p.model.View())
				}
			})
		}
	}
}

// The answer to why may come late: it does not take the keys of what the user does by then.
func TestLateAnswerDoesNotTakeKeys(t *testing.T) {
	for name, tc := range map[string]struct{ before, after, sees string }{
		"a filter":  {"/ tra", "iner", "show only: trainer"},
		"a setting": {"d", "5r", "deadline of c00 (9s, 250ms, none): 5r"},
		"the help":  {"?", "r", "> c00"},
	} {
		t.Run(name, func(t *testing.T) {
			p := sit(t, 100, 24, many(3))
			m, why := p.model.Update(tea.KeyMsg{Type: tea.KeyEnter})
			p.model = m
			p.press(tc.before)
			p.send(why())
			p.seesNot("did why")
			p.press(tc.after)
			p.sees(tc.sees)
			if got := strings.Join(p.node.asked, ", "); got != "why c00" {
				t.Errorf("asked %q", got)
			}
		})
	}
}

func TestSortFilterAndDetails(t *testing.T) {
	p := sit(t, 110, 30, many(12))
	p.press("/ c1")
	p.sees("c10", "c11", "show only: c1")
	p.seesNot("c02 ")
	p.press("enter")
	p.sees("2 rows", "only c1")
	p.press("esc / gpu")
	p.send(tea.KeyMsg{Type: tea.KeySpace, Runes: []rune{' '}})
	p.press("1 enter")
	p.sees("6 rows", "c01", "c03")
	p.press("esc s s s")
	p.sees("by memory")
	if view := p.model.View(); strings.Index(view, "c11") > strings.Index(view, "c05") {
		t.Errorf("the most memory does not come first:\n%s", view)
	}
	p.press("S")
	p.sees("reversed")
	if view := p.model.View(); strings.Index(view, "c11") < strings.Index(view, "c05") {
		t.Errorf("reversed, it comes first:\n%s", view)
	}
	p.press("/ c00 enter i u")
	p.sees("image     imagec00", "1 of its last 2 tasks with a deadline (50%)", "waits for c01 on GPU 1", "4000", `label laxity.share="much" is invalid: write 30%`, "GPU-1234")
	p.press("esc / nothing enter")
	p.sees("nothing has nothing in it")
	p.press("p")
	p.sees("select a container first")
}

// What is shown and no longer true says how old it is; nothing is shown for ever.
func TestItSaysWhatIsOld(t *testing.T) {
	p := sit(t, 100, 24, many(2))
	p.seesNot("does not answer")
	p.now = t0.Add(4 * time.Second)
	p.sees("the exporter does not answer; all of this is 4s old")
	p.send(many(2))
	p.seesNot("does not answer")
}

func TestNothingToShow(t *testing.T) {
	p := sit(t, 100, 24, top.Facts{Snapshot: &task.Snapshot{Health: task.Health{DeviceUp: true, EngineUp: true}}})
	p.sees("laxity.deadline=9s", "laxity sim run")
	p.press("?")
	p.sees("release it")
}

// Names are written by strangers.
func TestStrangersDoNotDriveIt(t *testing.T) {
	facts := many(1)
	facts.Snapshot.Containers[0].Name = "web\x1b[2J\r\nFORGED"
	facts.Snapshot.Containers[0].Image = "\x1b]0;x\x07"
	p := sit(t, 100, 24, facts)
	p.press("i")
	if view := p.model.View(); strings.ContainsAny(view, "\x1b\x07\r") || strings.Contains(view, "\nFORGED") {
		t.Errorf("%q", view)
	}
}
