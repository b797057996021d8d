package top

import (
	"context"
	"strings"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/plain"
)

// patience bounds an action.
const patience = 10 * time.Second

// pressed takes a key.
func (m Model) pressed(k tea.KeyMsg) (tea.Model, tea.Cmd) {
	if k.String() == "ctrl+c" {
		return m, tea.Quit
	}
	switch m.mode {
	case filtering, changing:
		return m.typed(k)
	case reading:
		m.mode, m.text = browsing, "" // any key goes back, and does nothing else
		return m, nil
	}
	m.message = ""
	switch k.String() {
	case "q":
		return m, tea.Quit
	case "esc":
		m.filter = ""
	case "up", "k":
		m.move(-1)
	case "down", "j":
		m.move(1)
	case "pgup", "ctrl+b":
		m.move(-m.room())
	case "pgdown", "ctrl+f", " ":
		m.move(m.room())
	case "home", "g":
		m.move(-len(m.rows))
	case "end", "G":
		m.move(len(m.rows))
	case "s":
		m.sorted = (m.sorted + 1) % len(orders)
	case "S":
		m.reverse = !m.reverse
	case "a":
		m.o.All = !m.o.All
	case "u":
		m.o.Whole = !m.o.Whole
	case "i":
		m.details = !m.details
	case "?", "h":
		m.mode, m.text = reading, help
	case "/":
		m.ask(filtering, "show only: ", m.filter)
	case "enter", "w":
		return m, m.act("", m.o.Node.Why, true)
	case "p":
		return m, m.act("pause", m.o.Node.Pause, false)
	case "r":
		return m, m.act("release", m.o.Node.Release, false)
	case "d":
		m.askChange(task.SettingDeadline, "9s, 250ms, none")
	case "%":
		m.askChange(task.SettingShare, "30%, none")
	}
	m.arrange()
	return m, nil
}

// askChange asks for the new value of a setting of the selected container.
func (m *Model) askChange(setting, values string) {
	if r, ok := m.row(); ok {
		m.setting = setting
		m.ask(changing, setting+" of "+plain.Line(r.Container)+" ("+values+"): ", "")
	}
}

// ask begins a line of input.
func (m *Model) ask(what mode, prompt, text string) {
	m.mode = what
	m.input.Prompt = prompt
	m.input.SetValue(text)
	m.input.CursorEnd()
	m.input.Focus()
}

// typed takes a key of a line of input.
func (m Model) typed(k tea.KeyMsg) (tea.Model, tea.Cmd) {
	asked := m.mode
	switch k.String() {
	case "esc":
		m.mode = browsing
		if asked == filtering {
			m.filter = ""
		}
	case "enter":
		m.mode = browsing
		if text := strings.TrimSpace(m.input.Value()); asked == changing && text != "" {
			return m, m.act(m.setting, func(ctx context.Context, container string) (string, error) {
				change, err := task.ParseChange(m.setting, text)
				if err != nil {
					return "", err
				}
				return m.o.Node.Change(ctx, container, change)
			}, false)
		}
	default:
		var cmd tea.Cmd
		m.input, cmd = m.input.Update(k)
		if asked == filtering {
			m.filter = m.input.Value()
			m.arrange()
		}
		return m, cmd
	}
	m.arrange()
	return m, nil
}

// act does something with the selected container, away from the screen.
func (m *Model) act(name string, do func(context.Context, string) (string, error), read bool) tea.Cmd {
	r, ok := m.row()
	if !ok {
		m.message, m.failed = "select a container first", true
		return nil
	}
	if name != "" {
		m.message, m.failed = name+" "+r.Container+" …", false
	}
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		text, err := do(ctx, r.ContainerID)
		return answered{strings.TrimSpace(text), err, read}
	}
}

const help = `↑ ↓ PgUp PgDn g G   select a container
enter, w            why it runs or waits, and what was decided about it
p                   pause it until it is released, or for --max-hold
r                   release it: it is not held again for its present tasks
d, %                change its deadline; its share of the GPU's time
i                   details: image, processes, invalid labels, for whom it waits
s, S                sort by the next column; turn the order round
/                   show only what has this in name, image, state, GPU (gpu 1) or note; Esc shows all
a                   containers without labels too
u                   GPUs by their UUIDs
q, Ctrl-C           end`
