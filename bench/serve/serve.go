// Package serve measures what a server's requests wait for beside training, and
// what the training pays for it.
package serve

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/mps"
	"github.com/laxity/laxity/bench/program"
	"github.com/laxity/laxity/bench/rig"
)

const about = `An inference server (PyTorch, 16 small layers; laxity.release=busy, laxity.deadline=20ms) answers a request
every 30 ms: alone, beside one trainer and beside four (PyTorch, each fills the GPU; laxity.class=batch). A request's latency is from
when it was due until its answer is on the host, so it includes the wait for the request before it. ` + method

const scenesAbout = `Other servers beside trainers, as in serve. two: two such servers with deadlines of 10 and 50 ms, and a trainer. decode: a
decode loop of an LLM's shape (24 layers, a CUDA graph a token, deadline 20 ms), which reads each token before it makes the next; its latency is the
time between two tokens. text: a server that is asked for a text of 100 tokens of the same model every 0.5 s, with a deadline of 500 ms, and two trainers. ` + method

const streamsAbout = `The server and the trainers of serve, each on a CUDA stream of its own: PyTorch computes on the default stream
unless a program says otherwise, and XSched leaves that one to the driver. ` + method

const method = `Each program is in a container of its own. Steps are those of all trainers together; fewest
is those of the trainer that made the fewest. Ways: default is time slicing without Laxity, laxity is "laxity up" with its
default flags, always the same with --arbitrate=always (only if asked for), mps is NVIDIA's MPS, mps-priority MPS
with the server's priority above the trainers', which get 80 % of the threads. xsched, if its folder is given, is
XSched: its shim in each program and its server with the policy HPF, the server's priority above the trainers'. In each run all ways are measured in
turn, in an order that changes. The first three steps of a program, and half a second more, are left
out (the experiment waits for a held program for --set warmup at most). Values are medians over the runs, with
their quartiles; a difference from default is none where the quartiles overlap. Requests are those of a run; where they are fewer
than 100, as texts are, the longest one is compared instead of the p99. On a simulated GPU the programs are
matrix multiplications, and a request comes 30 ms after the last answer.`

// The ways that are compared.
const (
	timeSliced  = "default"
	laxity      = "laxity"
	always      = "always"
	withMPS     = "mps"
	mpsPriority = "mps-priority"
	withXSched  = "xsched"
)

var allWays = []string{timeSliced, laxity, always, withMPS, mpsPriority, withXSched}

// Experiment is a server beside training.
func Experiment() bench.Experiment {
	return experiment("serve", "An inference server beside training", about, []scene{oneServer},
		"all but always, xsched if its folder is given")
}

// Scenes is other servers beside training.
func Scenes() bench.Experiment {
	e := experiment("serve-scenes", "Two servers, a decode loop and a server of texts beside training", scenesAbout, others, "default,laxity")
	e.Settings = append(e.Settings, bench.Setting{Name: "scene", Means: "two, decode or text, one a portion; two", Part: true})
	return e
}

// Streams is a server beside training, each program on a CUDA stream of its own.
func Streams() bench.Experiment {
	return experiment("serve-streams", "An inference server beside training, each on a CUDA stream of its own", streamsAbout, []scene{ownStreams},
		"default,laxity, and xsched if its folder is given")
}

func experiment(name, title, about string, of []scene, ways string) bench.Experiment {
	return bench.Experiment{
		Name: name, Title: title, About: about,
		Settings: []bench.Setting{
			{Name: "runs", Means: "how often each way is measured; 3", Part: true},
			{Name: "duration", Means: "how long a server is measured in each place, as 5s; 5s"},
			{Name: "warmup", Means: "how long programs may take to begin; 6s"},
			{Name: "ways", Means: "as default,laxity; of " + strings.Join(allWays, ", ") + "; " + ways},
			{Name: withXSched, Means: "folder of XSched, with bin/xserver and lib/libcuda.so.1", Part: true},
			{Name: withXSched + "-build", Means: "XSched's public commit, and what was changed to build it"},
			{Name: withXSched + "-level", Means: "its level of preemption; 1"},
			{Name: withXSched + "-inflight", Means: "how many commands of a trainer it lets to the GPU at a time; 4"},
			rig.Engine,
			{Name: "verbose", Means: "any value: the output of laxity up goes to standard error", Part: true},
		},
		Portions: true, Figures: figures, Table: table,
		Run: func(ctx context.Context, env bench.Env) ([]bench.Row, error) { return run(ctx, env, name, of) },
	}
}

// settings are what --set says.
type settings struct {
	runs             int
	duration, warmup time.Duration
	ways             []string
	scene            scene
	xsched           xsched
}

func parse(env bench.Env, of []scene) (s settings, err error) {
	s = settings{runs: 3, duration: 5 * time.Second, warmup: 6 * time.Second, scene: of[0]}
	if name, ok := env.Args["scene"]; ok {
		if s.scene, err = sceneCalled(name, of); err != nil {
			return s, err
		}
	}
	s.ways = s.scene.ways
	if env.Quick {
		s.runs, s.duration, s.scene.begun = 1, 2*time.Second, s.scene.begun[:2]
	}
	if s.runs, err = env.Number("runs", 1, s.runs); err != nil {
		return s, err
	}
	for name, to := range map[string]*time.Duration{"duration": &s.duration, "warmup": &s.warmup} {
		if *to, err = env.Duration(name, *to); err != nil {
			return s, err
		}
	}
	if s.xsched, err = parseXSched(env); err != nil {
		return s, err
	}
	if s.xsched.folder != "" {
		s.ways = append(slices.Clone(s.ways), withXSched)
	}
	if text, ok := env.Args["ways"]; ok {
		s.ways = strings.Split(text, ",")
	}
	for _, w := range s.ways {
		if !slices.Contains(allWays, w) {
			return s, fmt.Errorf("--set ways: no way %q; write some of %s", w, strings.Join(allWays, ","))
		}
		if w == withXSched && s.xsched.folder == "" {
			return s, errors.New("--set ways: xsched needs its folder: --set xsched=FOLDER")
		}
	}
	return s, nil
}

func run(ctx context.Context, env bench.Env, name string, of []scene) (rows []bench.Row, err error) {
	how, err := parse(env, of)
	if err != nil {
		return nil, err
	}
	r, err := rig.Open(ctx, env, name, 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	m := &measurement{Rig: r, env: env, how: how, without: map[string]string{}}
	if m.programs, err = program.Open(r, torchPrograms); err != nil {
		return nil, err
	}
	if r.GPU.Simulated() {
		m.without[withMPS], m.without[mpsPriority] = "the simulated GPU has no MPS", "the simulated GPU has no MPS"
		m.without[withXSched] = "its shim needs NVIDIA's driver"
	}
	return env.Repeat(how.runs, func(number int) ([]bench.Row, error) { return m.run(ctx, number) })
}

// measurement is what all runs use.
type measurement struct {
	*rig.Rig
	env      bench.Env
	how      settings
	programs *program.Set
	without  map[string]string // ways that cannot be measured here, and why
}

// run measures all ways once. All programs are started before the first way, and
// wait, so that no start disturbs what is measured.
func (m *measurement) run(ctx context.Context, number int) (rows []bench.Row, err error) {
	var sets []*set
	defer func() {
		for _, s := range sets {
			err = errors.Join(err, s.remove())
		}
	}()
	for _, way := range bench.Turned(m.how.ways, number) {
		s, err := m.newSet(ctx, number, way)
		if err = m.leaveOut(way, err); err != nil {
			return nil, err
		}
		if s != nil {
			sets = append(sets, s)
		}
	}
	if err := startAll(ctx, sets); err != nil {
		return nil, err
	}
	for _, s := range sets {
		found, err := m.measure(ctx, s)
		rows = append(rows, found...)
		if err = errors.Join(m.leaveOut(s.way, err), s.remove()); err != nil {
			return rows, err
		}
		for _, r := range found {
			m.env.Log("run %d, %s, %s beside %v: p50 %s, p99 %s, most %s ms; %s steps a second", number, s.way, r["who"], r["beside"],
				bench.Number(1000*r.Num("p50_s")), bench.Number(1000*r.Num("p99_s")), bench.Number(1000*r.Num("most_s")), bench.Number(r.Num("steps_per_s")))
		}
	}
	return rows, nil
}

// leaveOut takes an error that only says that a way cannot be measured here.
func (m *measurement) leaveOut(way string, err error) error {
	var no *mps.UnavailableError
	if why := m.without[way]; why == "" && errors.As(err, &no) {
		m.without[way] = no.Why
		m.env.Log("%s is left out: %s", way, no.Why)
		return nil
	}
	return err
}
