package view_test

import (
	"encoding/json"
	"errors"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/cmd/internal/view"
	"github.com/laxity/laxity/exporter/task"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func snapshot() *task.Snapshot {
	managed := task.Spec{Managed: true, Deadline: 9, Class: task.ClassDeadline, Release: task.ReleaseProcess}
	end := &task.Mark{Time: now.Add(-time.Minute)}
	return &task.Snapshot{
		GPUs: []task.GPU{{UUID: "GPU-a", Index: 0}, {UUID: "GPU-b", Index: 1}},
		Containers: []task.Container{
			{ID: "1", Name: "idle-with-label", Spec: managed},
			{ID: "2", Name: "plain-bystander"},
			{ID: "3", Name: "trainer-with-a-very-long-name-that-would-not-fit", Spec: task.Spec{Managed: true},
				MemoryUsed: map[string]uint64{"GPU-a": 1 << 30, "GPU-b": 566 << 20}, SMUtilization: map[string]float64{"GPU-a": 0.5}},
			{ID: "4", Name: "web", Spec: managed, MemoryUsed: map[string]uint64{"GPU-a": 566 << 20}},
			{ID: "5", Name: "done", Spec: managed},
		},
		Tasks: []task.Task{
			{ContainerID: "3", GPUs: []string{"GPU-a", "GPU-b"}, State: task.Running},
			{ContainerID: "4", GPUs: []string{"GPU-a"}, State: task.Paused, Deadline: now.Add(4500 * time.Millisecond)},
			{ContainerID: "4", GPUs: []string{"GPU-a"}, State: task.Paused, Deadline: now.Add(-time.Second)},
		},
		Ended: []task.Task{
			{ContainerID: "5", GPUs: []string{"GPU-b"}, State: task.Ended, End: end, Deadline: end.Time.Add(2 * time.Second)},
			{ContainerID: "5", GPUs: []string{"GPU-b"}, State: task.Ended, End: end, Deadline: end.Time.Add(-2 * time.Second)},
			{ContainerID: "4", GPUs: []string{"GPU-a"}, State: task.Ended, End: end, Deadline: end.Time.Add(-2 * time.Second)},
		},
	}
}

func TestTable(t *testing.T) {
	var b strings.Builder
	if err := view.Table(&b, view.Rows(snapshot(), now, false), 80, false); err != nil {
		t.Fatal(err)
	}
	want := `CONTAINER                  DEADLINE  STATE       FLOAT   GPU  MEMORY   SM   LAST
web                        9s        paused (2)  -1.00s  0    566MiB   -    miss
trainer-with-a-very-long…  -         running     -       0    1.00GiB  50%
trainer-with-a-very-long…  -         running     -       1    566MiB   -
done                       9s        idle        +2.00s  1    -        -    hit
idle-with-label            9s        idle        -       -    -        -
`
	if b.String() != want {
		t.Errorf("got:\n%swant:\n%s", b.String(), want)
	}
	for line := range strings.Lines(b.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("line of %d characters: %s", n, line)
		}
	}
}

// Whoever wrote a label with an unknown name finds the container in the list, though nobody acts on it.
func TestRowsHaveContainersWithUnknownLabels(t *testing.T) {
	s := &task.Snapshot{Containers: []task.Container{{ID: "1", Name: "web", Invalid: []task.InvalidLabel{{Label: "laxity.puase"}}}, {ID: "2", Name: "db"}}}
	if rows := view.Rows(s, now, false); len(rows) != 1 || rows[0].Container != "web" {
		t.Errorf("%+v", rows)
	}
}

// The column of the gang is there where one has a gang, and makes room in a narrow terminal.
func TestGang(t *testing.T) {
	s := snapshot()
	for _, gang := range []string{"", "job-7"} {
		for i := range s.Containers {
			s.Containers[i].Spec.Gang = gang
		}
		rows := view.Rows(s, now, false)
		for _, width := range []int{0, 60} {
			var b strings.Builder
			if err := view.Table(&b, rows, width, false); err != nil {
				t.Fatal(err)
			}
			if want := gang != "" && width == 0; strings.Contains(b.String(), "GANG") != want || strings.Contains(b.String(), "job-7") != want {
				t.Errorf("gang %q, width %d:\n%s", gang, width, b.String())
			}
		}
	}
}

// memory is how containers of the snapshot stand when all their memory is limited,
// lent, waited for and swapped.
func memory() (*task.Snapshot, []state.Container) {
	s := snapshot()
	for i := range s.Containers {
		if c := &s.Containers[i]; c.Name != "done" {
			c.Spec.GPUMemory = 4 << 30
		}
	}
	return s, []state.Container{
		{ID: "1", MemoryWaits: "web comes back first"},
		{ID: "3", MemoryWaits: "1 GiB is missing", MemoryWaitGPU: "GPU-b", MemoryWaitSeconds: 61.2,
			Memory: []state.Memory{{GPU: "GPU-a", Share: 512 << 20, Lent: 512 << 20}, {GPU: "GPU-b", Share: 1 << 30}}},
		{ID: "4", Memory: []state.Memory{{GPU: "GPU-a", Share: 2 << 30, Swapped: 1500 << 20}}},
		{ID: "of another node"},
	}
}

func TestMemory(t *testing.T) {
	s, states := memory()
	rows := view.Rows(s, now, false)
	view.AddMemory(rows, states)
	for width, want := range map[int]string{
		0: `CONTAINER                                         DEADLINE  STATE       FLOAT   GPU  MEMORY   LIMIT    NOTE         SM   LAST
web                                               9s        paused (2)  -1.00s  0    566MiB   4.00GiB  out 1.46GiB  -    miss
trainer-with-a-very-long-name-that-would-not-fit  -         running     -       0    1.00GiB  4.00GiB  lent 512MiB  50%
trainer-with-a-very-long-name-that-would-not-fit  -         running     -       1    566MiB   4.00GiB  waits 1m1s   -
done                                              9s        idle        +2.00s  1    -                              -    hit
idle-with-label                                   9s        idle        -       -    -        4.00GiB  waits        -
`,
		// 80 characters have no room for SM and LAST besides.
		80: `CONTAINER       DEADLINE  STATE       FLOAT   GPU  MEMORY   LIMIT    NOTE
web             9s        paused (2)  -1.00s  0    566MiB   4.00GiB  out 1.46GiB
trainer-with-…  -         running     -       0    1.00GiB  4.00GiB  lent 512MiB
trainer-with-…  -         running     -       1    566MiB   4.00GiB  waits 1m1s
done            9s        idle        +2.00s  1    -
idle-with-lab…  9s        idle        -       -    -        4.00GiB  waits
`,
	} {
		var b strings.Builder
		if err := view.Table(&b, rows, width, false); err != nil {
			t.Fatal(err)
		}
		if b.String() != want {
			t.Errorf("width %d, got:\n%swant:\n%s", width, b.String(), want)
		}
	}
	text, err := json.Marshal(rows[2])
	if want := `"memory_used_bytes":593494016,"memory_limit_bytes":4294967296,"memory_share_bytes":1073741824,` +
		`"memory_waits":"1 GiB is missing","memory_wait_seconds":61.2}`; err != nil || !strings.HasSuffix(string(text), want) {
		t.Errorf("%s, %v; want it to end with %s", text, err, want)
	}
}

func TestUnguarded(t *testing.T) {
	s, _ := memory()
	rows := view.Rows(s, now, false)
	view.AddMemory(rows, []state.Container{{ID: "4", MemoryUnguarded: "no uprobes here"}})
	var b strings.Builder
	if err := view.Table(&b, rows, 80, false); err != nil {
		t.Fatal(err)
	}
	if want := "0    566MiB   4.00GiB  unguarded\n"; !strings.Contains(b.String(), want) {
		t.Errorf("got:\n%swant a line\n%s", b.String(), want)
	}
	text, err := json.Marshal(rows[0])
	if err != nil || !strings.HasSuffix(string(text), `"memory_unguarded":"no uprobes here"}`) {
		t.Errorf("%s, %v", text, err)
	}
}

// What a GPU's order says is told in 80 characters, besides who holds memory.
func TestOrder(t *testing.T) {
	s := snapshot()
	s.Containers = append(s.Containers, task.Container{ID: "6", Name: "batch", Spec: task.Spec{Managed: true}, MemoryUsed: map[string]uint64{"GPU-a": 1 << 30}})
	s.Tasks = append(s.Tasks, task.Task{ContainerID: "6", GPUs: []string{"GPU-a"}, State: task.Running})
	rows := view.Rows(s, now, false)
	state := state.State{
		GPUs: []state.GPU{{UUID: "GPU-a", Order: []string{"web", "trainer-with-a-very-long-name-that-would-not-fit", "batch"}}, {UUID: "GPU-b"}},
		Containers: []state.Container{
			{ID: "4", Order: "its requests come first, slice 1 s", SliceSeconds: 1, DeadlineUnmet: "it needs 3s"},
			{ID: "3", Order: "its turn beside the requests of web, slice 100 µs", SliceSeconds: 100e-6},
			{ID: "6", Order: "off the GPU for 40 ms: requests of web come first", Off: true, SliceSeconds: 2048e-6},
		},
	}
	view.AddState(rows, state)
	var b strings.Builder
	if err := view.Table(&b, rows, 80, false); err != nil {
		t.Fatal(err)
	}
	want := `CONTAINER       DEADLINE  STATE       FLOAT   GPU  ORDER      MEMORY   SM   LAST
web             9s        paused (2)  -1.00s  0    1st 1s     566MiB   -    miss
batch           -         held        -       0    off: web   1.00GiB  -
trainer-with-…  -         running     -       0    2nd 100µs  1.00GiB  50%
trainer-with-…  -         running     -       1               566MiB   -
done            9s        idle        +2.00s  1               -        -    hit
idle-with-lab…  9s        idle        -       -               -        -
`
	if b.String() != want {
		t.Errorf("got:\n%swant:\n%s", b.String(), want)
	}
	b.Reset()
	if err := view.WriteUnmet(&b, append(rows, rows...)); err != nil || b.String() != "web: its deadline cannot be promised: it needs 3s\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
	text, err := json.Marshal(rows[1])
	if want := `"rank":3,"slice_seconds":0.002048,"off":true,"order_reason":"off the GPU for 40 ms: requests of web come first"}`; err != nil || !strings.HasSuffix(string(text), want) {
		t.Errorf("%s, %v; want it to end with %s", text, err, want)
	}
}

// Whatever stands in the columns, no line is longer than the terminal is wide.
func TestNoLineIsTooLong(t *testing.T) {
	float := task.Seconds(-5399)
	row := view.Row{Container: "trainer-of-somebody", Deadline: 5400, State: "swapped", Tasks: 12, Float: &float, Last: task.LostOutcome,
		GPU: task.UnknownGPU, GPUIndex: -1, Memory: 143771 << 20, Limit: 99 << 30, Standing: view.Standing{Waits: "room", WaitSeconds: 5399}, Order: view.Order{Rank: 112, Slice: 2048e-6}}
	odd := row
	odd.Deadline = 1.0 / 3
	for _, width := range []int{80, 60, 40} {
		for _, rows := range [][]view.Row{{row}, {row, odd}} {
			var out strings.Builder
			if err := view.Table(&out, rows, width, false); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(out.String()) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
					t.Errorf("%d characters, the terminal has %d: %s", n, width, line)
				}
			}
		}
	}
}

func TestSummary(t *testing.T) {
	well := task.Health{DeviceUp: true, EngineUp: true}
	for _, tt := range []struct {
		name  string
		spoil func(s *task.Snapshot)
		want  string
	}{
		{"well", func(*task.Snapshot) {},
			"GPU 0  H200  use 50%  memory 1.00GiB of 4.00GiB  tasks 3\nGPU 1  H200  use -  memory - of 4.00GiB  tasks 1\n\n"},
		{"a GPU is lost", func(s *task.Snapshot) {
			s.GPUs[1] = task.GPU{UUID: "GPU-b", Index: 1, Name: "H200", Error: "GPU is lost"}
			s.Health.DeviceError = "GPU-b: GPU is lost"
		}, "GPU 0  H200  use 50%  memory 1.00GiB of 4.00GiB  tasks 3\nGPU 1  H200  tasks 1\nGPU 1 does not answer, its tasks are as last seen: GPU is lost\n\n"},
		{"the driver hangs", func(s *task.Snapshot) {
			s.GPUs, s.Health.DeviceUp, s.Health.DeviceError, s.Age = s.GPUs[:1], false, "it hangs", 3
		}, "GPU 0  H200  use 50%  memory 1.00GiB of 4.00GiB  tasks 3\nGPUs do not answer, facts are 3s old: it hangs\n\n"},
		{"nothing has answered yet", func(s *task.Snapshot) {
			*s = task.Snapshot{Health: task.Health{DeviceError: "no driver", EngineError: "no engine"}}
		}, "GPUs do not answer: no driver\ncontainer engine does not answer, containers are as last seen: no engine\n\n"},
	} {
		s := snapshot()
		s.Time, s.Health = now.Add(-3*time.Second), well
		for i := range s.GPUs {
			s.GPUs[i].Name, s.GPUs[i].MemoryTotal, s.GPUs[i].Utilization = "H200", 4<<30, task.Ratio(math.NaN())
		}
		s.GPUs[0].MemoryUsed, s.GPUs[0].Utilization = 1<<30, 0.5
		tt.spoil(s)
		var b strings.Builder
		if err := view.Summary(&b, s); err != nil || b.String() != tt.want {
			t.Errorf("%s: %v, got:\n%swant:\n%s", tt.name, err, b.String(), tt.want)
		}
	}
}

// GPUs of which the exporter knows nothing yet have no index: after a restart while NVML
// does not answer.
func TestGPUsThatAreNotKnown(t *testing.T) {
	const a, b = "GPU-00112233-4455-6677-8899-aabbccddeeff", "MIG-ffeeddcc-bbaa-9988-7766-554433221100"
	s := &task.Snapshot{
		Containers: []task.Container{{ID: "1", Name: "trainer-with-a-very-long-name-that-would-not-fit", Spec: task.Spec{Managed: true, Deadline: 9000}}},
		Tasks:      []task.Task{{ContainerID: "1", GPUs: []string{a, b, task.UnknownGPU}, State: task.Paused, Deadline: now.Add(time.Hour)}},
	}
	var out strings.Builder
	if err := view.Table(&out, view.Rows(s, now, false), 80, false); err != nil {
		t.Fatal(err)
	}
	want := `CONTAINER              DEADLINE  STATE   FLOAT    GPU           MEMORY  SM  LAST
trainer-with-a-very-…  2h30m0s   paused  +1h0m0s  GPU-00112233  -       -
trainer-with-a-very-…  2h30m0s   paused  +1h0m0s  MIG-ffeeddcc  -       -
trainer-with-a-very-…  2h30m0s   paused  +1h0m0s  unknown       -       -
`
	if out.String() != want {
		t.Errorf("got:\n%swant:\n%s", out.String(), want)
	}
}

// An idle server holds memory (laxity.release=busy), and a task that ended may have used
// several GPUs: all of them are shown.
func TestIdleOnSeveralGPUs(t *testing.T) {
	s := snapshot()
	s.Tasks = nil
	s.Containers = []task.Container{{ID: "4", Name: "server", MemoryUsed: map[string]uint64{"GPU-a": 20 << 30, "GPU-b": 1 << 30}},
		{ID: "5", Name: "done"}, {ID: "6", Name: "fresh", MemoryUsed: map[string]uint64{"GPU-b": 2 << 30}}}
	s.Ended[0].GPUs = []string{"GPU-a", "GPU-b"}
	var out strings.Builder
	if err := view.Table(&out, view.Rows(s, now, false), 80, false); err != nil {
		t.Fatal(err)
	}
	want := `CONTAINER  DEADLINE  STATE  FLOAT   GPU  MEMORY   SM  LAST
done       -         idle   +2.00s  0    -        -   hit
done       -         idle   +2.00s  1    -        -   hit
fresh      -         idle   -       1    2.00GiB  -
server     -         idle   -2.00s  0    20.0GiB  -   miss
server     -         idle   -       1    1.00GiB  -
`
	if out.String() != want {
		t.Errorf("got:\n%swant:\n%s", out.String(), want)
	}
}

// The instances of a card that is cut into several are told apart.
func TestMIG(t *testing.T) {
	s := &task.Snapshot{
		GPUs: []task.GPU{{UUID: "GPU-a", Index: 0, Name: "H200"},
			{UUID: "MIG-b", Index: 1, Parent: "GPU-b", Name: "H200 MIG 1g"}, {UUID: "MIG-c", Index: 1, Parent: "GPU-b", Name: "H200 MIG 1g"}},
		Containers: []task.Container{{ID: "1", Name: "web"}},
		Tasks:      []task.Task{{ContainerID: "1", GPUs: []string{"MIG-c", "MIG-b", "GPU-a"}, State: task.Running}},
		Health:     task.Health{DeviceUp: true, EngineUp: true},
	}
	for i := range s.GPUs {
		s.GPUs[i].Utilization = task.Ratio(math.NaN())
	}
	var out strings.Builder
	if err := errors.Join(view.Summary(&out, s), view.Table(&out, view.Rows(s, now, false), 80, false)); err != nil {
		t.Fatal(err)
	}
	want := `GPU 0  H200  use -  memory - of -  tasks 1
GPU 1:0  H200 MIG 1g  use -  memory - of -  tasks 1
GPU 1:1  H200 MIG 1g  use -  memory - of -  tasks 1

CONTAINER  DEADLINE  STATE    FLOAT  GPU  MEMORY  SM  LAST
web        -         running  -      0    -       -
web        -         running  -      1:0  -       -
web        -         running  -      1:1  -       -
`
	if out.String() != want {
		t.Errorf("got:\n%swant:\n%s", out.String(), want)
	}
}

// No containers are an empty list, which a program can read.
func TestNoRows(t *testing.T) {
	if text, err := json.Marshal(view.Rows(&task.Snapshot{}, now, true)); err != nil || string(text) != "[]" {
		t.Errorf("%s, %v", text, err)
	}
}

func TestAllShowsBystanders(t *testing.T) {
	rows := view.Rows(snapshot(), now, true)
	if n := len(rows); n != 6 {
		t.Errorf("%d rows, want 6: %+v", n, rows)
	}
}

func TestFormats(t *testing.T) {
	for in, want := range map[float64]string{
		1.254: "+1.25s", -3: "-3.00s", 42.06: "+42.1s", 3725: "+1h2m5s", -600: "-10m0s", 0: "+0.00s",
	} {
		if got := view.Float(task.Seconds(in)); got != want {
			t.Errorf("Float(%v) = %q, want %q", in, got, want)
		}
	}
	if got := view.Float(task.Seconds(math.Inf(1))); got != "-" {
		t.Errorf("Float(+Inf) = %q", got)
	}
	for in, want := range map[uint64]string{
		0: "-", 512: "512B", 566 << 20: "566MiB", 1 << 30: "1.00GiB", 12800 << 20: "12.5GiB", 143771 << 20: "140GiB",
	} {
		if got := view.Bytes(in); got != want {
			t.Errorf("Bytes(%v) = %q, want %q", in, got, want)
		}
	}
}

// Colours change nothing but the colour: what is left without the codes is the same.
func TestPaint(t *testing.T) {
	var plain, painted strings.Builder
	rows := view.Rows(snapshot(), now, false)
	if err := errors.Join(view.Table(&plain, rows, 80, false), view.Table(&painted, rows, 80, true)); err != nil {
		t.Fatal(err)
	}
	if stripped := regexp.MustCompile("\x1b\\[[0-9]+m").ReplaceAllString(painted.String(), ""); stripped != plain.String() || stripped == painted.String() {
		t.Errorf("painted:\n%q\nplain:\n%q", painted.String(), plain.String())
	}
	if !strings.Contains(painted.String(), "\x1b[31m-1.00s\x1b[0m") || !strings.Contains(painted.String(), "\x1b[33mpaused (2)\x1b[0m") {
		t.Errorf("what is late is not red, or what stands still not yellow:\n%q", painted.String())
	}
}

func TestNoColour(t *testing.T) {
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	if !view.Colours(true) || view.Colours(false) {
		t.Error("a terminal has colours, and nothing else")
	}
	t.Setenv("NO_COLOR", "1")
	if view.Colours(true) {
		t.Error("NO_COLOR is ignored")
	}
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "dumb")
	if view.Colours(true) {
		t.Error("a dumb terminal has no colours")
	}
}

// A number that is none is null in JSON, and says why.
func TestFloatReason(t *testing.T) {
	rows := view.Rows(&task.Snapshot{
		Containers: []task.Container{{ID: "1", Name: "batch", Spec: task.Spec{Managed: true}}, {ID: "2", Name: "idle", Spec: task.Spec{Managed: true}}, {ID: "3", Name: "late", Spec: task.Spec{Managed: true}}},
		Tasks:      []task.Task{{ContainerID: "1", GPUs: []string{"GPU-a"}, State: task.Running}, {ContainerID: "3", GPUs: []string{"GPU-a"}, State: task.Running, Deadline: now.Add(-time.Second)}},
	}, now, false)
	for i, want := range []string{`"float_seconds":-1,"tasks"`, `"float_seconds":null,"float_reason":"its task has no deadline"`, `"float_seconds":null,"float_reason":"it has had no task"`} {
		if text, err := json.Marshal(rows[i]); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s, %v; want %s", text, err, want)
		}
	}
}
