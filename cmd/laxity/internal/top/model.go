// Package top is the live table of containers and GPUs in a terminal, with keys that act.
package top

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/bubbles/cursor"
	"github.com/charmbracelet/bubbles/textinput"
	tea "github.com/charmbracelet/bubbletea"

	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/cmd/internal/view"
	"github.com/laxity/laxity/exporter/task"
)

// Node carries out what a person asks for. Answers and errors are sentences for people.
type Node interface {
	Pause(ctx context.Context, container string) (string, error)
	Release(ctx context.Context, container string) (string, error)
	// Change changes settings of the container.
	Change(ctx context.Context, container string, change task.Change) (string, error)
	// Why says why the container runs or waits.
	Why(ctx context.Context, container string) (string, error)
}

// Facts are what is true now. A nil part did not change.
type Facts struct {
	Snapshot *task.Snapshot
	State    *state.State
}

// Options of a Model. Node is required.
type Options struct {
	Node   Node
	All    bool // also containers without labels and tasks
	Whole  bool // GPUs by their UUIDs
	Colour view.Palette
	Now    func() time.Time
}

// mode is what the keys mean now.
type mode int

const (
	browsing mode = iota
	filtering
	changing // the setting
	reading  // the answer to why, or the help
)

// Model is the state of the screen.
type Model struct {
	o             Options
	width, height int

	snapshot *task.Snapshot
	state    state.State
	heard    time.Time
	history  map[string][]float64 // of the use of each GPU, oldest first

	rows     []view.Row // as shown, sorted and filtered
	selected key
	first    int // of the rows on the screen
	sorted   int // in orders
	reverse  bool
	filter   string
	details  bool // of the selected row

	mode    mode
	setting string // that changes
	input   textinput.Model
	text    string // that is read
	message string // about the last action
	failed  bool
}

// key names a row whatever its place.
type key struct{ container, gpu string }

func keyOf(r view.Row) key { return key{r.ContainerID, r.GPU} }

// historyLength is how many readings of a GPU's use are kept: a minute's.
const historyLength = 60

// tick is how often the screen is drawn without news: float changes by itself.
const tick = 500 * time.Millisecond

type tickMsg struct{}

// answered is what came of an action.
type answered struct {
	text string
	err  error
	read bool // it is longer than a line
}

// New returns an empty screen.
func New(o Options) Model {
	if o.Now == nil {
		o.Now = time.Now
	}
	in := textinput.New()
	in.CharLimit = 64
	in.Cursor.SetMode(cursor.CursorStatic)
	return Model{o: o, heard: o.Now(), history: map[string][]float64{}, input: in}
}

// Init implements tea.Model.
func (m Model) Init() tea.Cmd { return again() }

func again() tea.Cmd { return tea.Tick(tick, func(time.Time) tea.Msg { return tickMsg{} }) }

// Update implements tea.Model.
func (m Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case Facts:
		m.take(msg)
	case tickMsg:
		m.remember()
		m.arrange()
		return m, again()
	case answered:
		m.failed = msg.err != nil
		switch {
		case msg.err != nil:
			m.message = msg.err.Error()
		case !msg.read:
			m.message = msg.text
		case m.mode == browsing: // else the user types, or reads, and the next keys are meant for that
			m.mode, m.text = reading, msg.text
		}
	case tea.KeyMsg:
		if msg.Type != tea.KeyRunes || msg.Paste || len(msg.Runes) < 2 {
			return m.pressed(msg)
		}
		var next tea.Model = m
		var cmds []tea.Cmd
		for _, r := range msg.Runes { // typed so fast that they came together
			var cmd tea.Cmd
			next, cmd = next.(Model).pressed(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune{r}})
			cmds = append(cmds, cmd)
		}
		return next, tea.Batch(cmds...)
	}
	m.arrange()
	return m, nil
}

func (m *Model) take(f Facts) {
	if f.State != nil {
		m.state = *f.State
	}
	if f.Snapshot != nil {
		m.snapshot, m.heard = f.Snapshot, m.o.Now()
	}
}

// remember adds the present use of each GPU to its history.
func (m *Model) remember() {
	if m.snapshot == nil {
		return
	}
	history := make(map[string][]float64, len(m.snapshot.GPUs))
	for _, g := range m.snapshot.GPUs {
		past := append(slices.Clone(m.history[g.UUID]), float64(g.Utilization))
		history[g.UUID] = past[max(0, len(past)-historyLength):]
	}
	m.history = history
}

// order is a way to sort the rows.
type order struct {
	name    string
	compare func(a, b view.Row) int // nil: as they come, the most urgent first
}

var orders = []order{
	{"urgency", nil},
	{"name", func(a, b view.Row) int { return cmp.Compare(a.Container, b.Container) }},
	{"GPU", func(a, b view.Row) int { return cmp.Compare(a.GPUName(), b.GPUName()) }},
	{"memory", func(a, b view.Row) int { return cmp.Compare(b.Memory, a.Memory) }},
	{"use", func(a, b view.Row) int { return cmp.Compare(use(b), use(a)) }},
	{"misses", func(a, b view.Row) int { return cmp.Compare(b.Misses, a.Misses) }},
	{"start", func(a, b view.Row) int { return b.Started.Compare(a.Started) }},
}

func use(r view.Row) float64 {
	if r.SM == nil {
		return -1
	}
	return *r.SM
}

// arrange makes the rows of what is known, and keeps the selected one selected.
func (m *Model) arrange() {
	if m.snapshot == nil {
		return
	}
	rows := view.Rows(m.snapshot, m.o.Now(), m.o.All)
	view.AddState(rows, m.state)
	if m.o.Whole {
		view.Whole(rows)
	}
	rows = slices.DeleteFunc(rows, func(r view.Row) bool { return !m.wanted(r) })
	if compare := orders[m.sorted].compare; compare != nil {
		slices.SortStableFunc(rows, compare)
	}
	if m.reverse {
		slices.Reverse(rows)
	}
	at := m.at()
	m.rows = rows
	if len(rows) == 0 {
		m.selected, m.first = key{}, 0
		return
	}
	if !slices.ContainsFunc(rows, func(r view.Row) bool { return keyOf(r) == m.selected }) {
		m.selected = keyOf(rows[min(max(at, 0), len(rows)-1)]) // its container is gone: the next one
	}
	m.scroll()
}

// wanted reports whether the filter lets a row through.
func (m *Model) wanted(r view.Row) bool {
	if m.filter == "" {
		return true
	}
	text := strings.ToLower(strings.Join([]string{r.Container, r.Image, r.State, "gpu " + r.GPUName(), r.ContainerID, r.Note()}, "\n"))
	return strings.Contains(text, strings.ToLower(strings.TrimSpace(m.filter)))
}

// at is the place of the selected row; -1 without one.
func (m *Model) at() int {
	return slices.IndexFunc(m.rows, func(r view.Row) bool { return keyOf(r) == m.selected })
}

// row is the selected one.
func (m *Model) row() (view.Row, bool) {
	if at := m.at(); at >= 0 {
		return m.rows[at], true
	}
	return view.Row{}, false
}

// move selects the row so many places further down.
func (m *Model) move(by int) {
	if len(m.rows) == 0 {
		return
	}
	m.selected = keyOf(m.rows[min(max(m.at()+by, 0), len(m.rows)-1)])
	m.scroll()
}

// scroll moves the window so that the selected row is in it.
func (m *Model) scroll() {
	room := m.room()
	at := max(0, m.at())
	m.first = min(m.first, at, max(0, len(m.rows)-room))
	m.first = max(m.first, at-room+1, 0)
}
