package top

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/laxity/laxity/cmd/internal/view"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/plain"
)

// oldAfter is when a snapshot counts as old. An exporter that answers sends one at least once
// a second.
const oldAfter = 3 * time.Second

// View implements tea.Model.
func (m Model) View() string {
	if m.snapshot == nil || m.width == 0 {
		return "waiting for the exporter …"
	}
	if m.mode == reading {
		return m.fit(m.page())
	}
	lines := m.head()
	lines = append(lines, m.table()...)
	lines = append(lines, m.about()...)
	foot := m.foot()
	for len(lines)+len(foot) < m.height {
		lines = append(lines, "")
	}
	return m.fit(append(lines[:max(0, min(len(lines), m.height-len(foot)))], foot...))
}

// page is the text that is read. Of one longer than the screen it shows the first line and the last ones, since
// the latest decisions come last.
func (m Model) page() []string {
	lines := strings.Split(m.text, "\n")
	const around = 2 // an empty line, and what leads back
	if over := len(lines) + around - m.height; over > 0 && m.height > 2*around {
		lines = append([]string{lines[0], "…"}, lines[over+2:]...)
	}
	return append(lines, "", m.o.Colour.Paint(view.Dim, "any key goes back"))
}

// fit cuts the lines to the screen.
func (m Model) fit(lines []string) string {
	lines = lines[:min(len(lines), m.height)]
	for i, line := range lines {
		lines[i] = ansi.Truncate(line, m.width, "…")
	}
	return strings.Join(lines, "\n")
}

// head is a line for each GPU, and what is wrong.
func (m Model) head() []string {
	var lines []string
	for _, g := range m.snapshot.GPUs {
		name := "GPU " + view.GPUName(m.snapshot, g.UUID)
		if m.o.Whole {
			name = plain.Line(g.UUID)
		}
		use := "  -"
		if u := float64(g.Utilization); !math.IsNaN(u) {
			use = fmt.Sprintf("%3.0f%%", 100*u)
		}
		room := max(10, min(historyLength, m.width-70))
		lines = append(lines, fmt.Sprintf("%s  %s  use %s %s  memory %s of %s  tasks %d", m.o.Colour.Paint(view.Bold, name), plain.Line(g.Name), use,
			m.o.Colour.Paint(view.Cyan, spark(m.history[g.UUID], room)), view.Bytes(g.MemoryUsed), view.Bytes(g.MemoryTotal), len(m.snapshot.TasksOn(g.UUID))))
	}
	if old := m.o.Now().Sub(m.heard); old > oldAfter {
		lines = append(lines, m.o.Colour.Paint(view.Red, fmt.Sprintf("the exporter does not answer; all of this is %s old", old.Round(time.Second))))
	}
	for _, line := range strings.Split(strings.TrimSpace(view.Trouble(m.snapshot)), "\n") {
		if line != "" {
			lines = append(lines, m.o.Colour.Paint(view.Red, line))
		}
	}
	for _, why := range []string{m.state.Trouble, m.state.Breaker, m.state.Standby} {
		if why != "" {
			lines = append(lines, m.o.Colour.Paint(view.Yellow, "nothing new is held: "+plain.Line(why)))
		}
	}
	return append(lines, "")
}

// spark draws the last readings, 0–1, one a letter; unknown ones are spaces.
func spark(values []float64, room int) string {
	const bars = "▁▂▃▄▅▆▇█"
	levels := []rune(bars)
	values = values[max(0, len(values)-room):]
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", room-len(values)))
	for _, v := range values {
		if math.IsNaN(v) {
			b.WriteByte(' ')
			continue
		}
		b.WriteRune(levels[min(max(int(v*float64(len(levels))), 0), len(levels)-1)])
	}
	return b.String()
}

// room is how many rows fit on the screen.
func (m *Model) room() int {
	return max(1, m.height-len(m.head())-1-len(m.about())-footLines)
}

// table is the head of the table and the rows on the screen, the selected one marked.
func (m Model) table() []string {
	if len(m.rows) == 0 {
		if m.filter != "" {
			return []string{"nothing has " + plain.Line(m.filter) + " in it; Esc shows all"}
		}
		return []string{"No container here has a laxity.* label or a task on a GPU. Start one like this:",
			"  docker run -d --gpus all --label laxity.deadline=9s IMAGE", "  laxity sim run --deadline 9s", "a shows the containers without."}
	}
	painted, bare := m.drawn(m.o.Colour), m.drawn(false)
	out := []string{"  " + painted[0]}
	for i := m.first; i < min(len(m.rows), m.first+m.room()); i++ {
		line := "  " + painted[i+1]
		if keyOf(m.rows[i]) == m.selected {
			line = "> " + bare[i+1]
			if m.o.Colour {
				line = "\x1b[7m" + line + strings.Repeat(" ", max(0, m.width-ansi.StringWidth(line))) + "\x1b[0m"
			}
		}
		out = append(out, line)
	}
	return out
}

// drawn is the whole table: columns are as wide as all of its rows need.
func (m Model) drawn(paint view.Palette) []string {
	var b strings.Builder
	_ = view.Wide(&b, m.rows, max(1, m.width-2), paint) // a Builder takes everything
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
}

// about has the details of the selected row.
func (m Model) about() []string {
	r, ok := m.row()
	if !ok || !m.details {
		return nil
	}
	lines := []string{""}
	add := func(name, text string) {
		if text != "" {
			lines = append(lines, fmt.Sprintf("  %s %s", m.o.Colour.Paint(view.Cyan, fmt.Sprintf("%-9s", name)), plain.Line(text)))
		}
	}
	add("container", r.Container+" "+r.ContainerID[:min(12, len(r.ContainerID))])
	add("image", r.Image)
	if !r.Started.IsZero() {
		add("up", fmt.Sprintf("%s, since %s", view.Age(m.o.Now().Sub(r.Started)), r.Started.Local().Format(time.DateTime)))
	}
	if n := r.Hits + r.Misses; n > 0 {
		add("hits", fmt.Sprintf("%d of its last %d tasks with a deadline (%.0f%%)", r.Hits, n, 100*float64(r.Hits)/float64(n)))
	}
	if r.TimeShare > 0 {
		add("share", task.ShareWords(r.TimeShare)+" of the GPU's time")
	}
	add("order", r.Reason)
	add("promise", r.Unmet)
	add("memory", r.Waits)
	for _, c := range m.state.Containers {
		if c.ID == r.ContainerID {
			add("waits", view.NameGPUs(c.Waits, m.snapshot))
		}
	}
	add("processes", strings.Trim(strings.Join(strings.Fields(fmt.Sprint(r.PIDs)), ", "), "[]"))
	for _, l := range r.Invalid {
		add("invalid", l.Error())
	}
	return lines
}

// footLines is the length of foot.
const footLines = 3

// foot is the line of input, or what came of the last action, and the keys.
func (m Model) foot() []string {
	var status string
	switch {
	case m.mode == filtering || m.mode == changing:
		return []string{"", m.input.View(), m.o.Colour.Paint(view.Dim, "enter takes it, Esc leaves it")}
	case m.message != "" && m.failed:
		status = m.o.Colour.Paint(view.Red, plain.Line(m.message))
	case m.message != "":
		status = m.o.Colour.Paint(view.Green, plain.Line(m.message))
	default:
		status = fmt.Sprintf("%s, by %s", view.Count(len(m.rows), "row"), orders[m.sorted].name)
		if m.reverse {
			status += ", reversed"
		}
		if m.filter != "" {
			status += ", only " + plain.Line(m.filter)
		}
		if n := len(m.rows) - m.first - m.room(); n > 0 {
			status += fmt.Sprintf(", %d more below", n)
		}
	}
	return []string{"", status, m.o.Colour.Paint(view.Dim, "enter why  p pause  r release  d deadline  % share  i details  / filter  s sort  a all  ? help  q quit")}
}
