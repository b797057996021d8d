// Package view turns what the actuator knows into what the page shows: words,
// classes and coordinates, and no markup.
//
// Pure: it imports the standard library, exporter/task, actuator/decision, actuator/lease,
// actuator/plan, actuator/state, actuator/page/timeline and actuator/placement only.
package view

import (
	"time"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/page/timeline"
	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/exporter/task"
)

// Facts is what a page is made of. They MUST NOT be changed by Build.
type Facts struct {
	Now time.Time
	// Window is how much of the past the time line shows.
	Window time.Duration
	// May: who looks may also act. Changes: settings of containers can be changed.
	May, Changes bool

	Service   Service
	Snapshot  *task.Snapshot // nil before the first
	Tasks     []timeline.Entry
	GPUs      map[string]Arbitration // by UUID
	Standings map[string]Standing    // by container id
	// Decisions are the last ones, oldest first.
	Decisions []decision.Decision
	Ranking   placement.Overview
}

// Service is how the actuator itself is.
type Service struct {
	Node   string
	Ready  bool
	Policy string
	// Share is how many run at once, Arbitrate when the policy decides.
	Share, Arbitrate string
	// Trouble, Standby and Breaker say why nothing new is held; else empty.
	Trouble, Standby, Breaker   string
	DryRun, GuardianUp, Drained bool
	// Inbox counts the alerts that wait.
	Inbox int
}

// Arbitration is what the actuator does about a GPU.
type Arbitration struct {
	Open, Relieve bool
	// Admitted may compute, Queue waits; names, the first one first.
	Admitted, Queue []string
	// Order names the containers by who comes first where the time of the GPU is divided by
	// slices; else empty.
	Order []string
	// Unkept says which promises of its time cannot be kept; else empty.
	Unkept string
}

// Standing is how a container stands with the actuator.
type Standing struct {
	Managed bool
	// Ours: we keep it from computing. Somebody: it is paused, and not by us.
	Ours, Somebody bool
	// Waits says why it must not run now; else empty.
	Waits string
	// Order says where it stands in the queue, and why, where the time of its GPU is divided by
	// slices; else empty. Off: its channels are off the GPU.
	Order string
	Off   bool
	// Unmet says why its deadline cannot be promised, as far as could be known at the start; else empty.
	Unmet string
	// Until is when our hold ends at the latest; zero without one.
	Until time.Time
	// Asked says who asked for its pause by this page; else empty.
	Asked string
}

// Page is what is shown.
type Page struct {
	Node       string
	May        bool
	Changes    bool
	Status     Status
	Windows    []WindowChoice
	GPUs       []GPU
	Containers []Container
	// Others counts containers that are neither managed nor use a GPU, LeftOut the
	// least urgent ones beyond what is listed.
	Others    int
	LeftOut   int
	Placement Placement
	Decisions []Decision
	// Latest is the latest decision in a sentence, for those who listen.
	Latest string
}

// Tone is what a colour means; it is never the only sign of it.
type Tone string

// The tones.
const (
	OK    Tone = "ok"    // time to spare
	Near  Tone = "near"  // less than a quarter of the deadline is left
	Late  Tone = "late"  // the deadline is missed
	Plain Tone = "plain" // no deadline
)

// Chip is a short remark about the service.
type Chip struct {
	Text string
	Tone Tone
}

// Status is the head of the page.
type Status struct {
	Ready bool
	// Why it is not ready; else empty.
	Why   string
	Chips []Chip
}

// WindowChoice is a length of the time line that can be chosen.
type WindowChoice struct {
	Text, Value string
	Chosen      bool
}

// Windows are the lengths that can be chosen, and DefaultWindow the one to begin
// with.
var Windows = []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute}

// DefaultWindow is shown if nothing else is asked for.
const DefaultWindow = 5 * time.Minute

// GPU is one GPU and its time line.
type GPU struct {
	UUID, Name    string
	Use, Memory   Meter
	MemoryText    string
	Arbitration   string
	Arbitrated    bool
	Turn, Waiting []string
	// Order is who comes first where all may compute.
	Order         []string
	Tasks         int
	Now           string // where now lies on the line
	Ticks         []Tick
	Lanes         []Lane
	Table         []TableRow
	TableLeftOut  int
	NothingToShow bool
	TasksLeftOut  int
	LanesLeftOut  int
}

// Meter is a share, 0–100; not known when Known is false.
type Meter struct {
	Known   bool
	Percent string
	Text    string
	// Full is a trouble.
	Full bool
}

// Tick is a mark of the axis.
type Tick struct {
	X, Text string
	Now     bool
	// Minor ones are left out where there is little room. Anchor is how the text
	// lies at X: start, middle or end.
	Minor  bool
	Anchor string
}

// Lane is one container's line. Height is in pixels.
type Lane struct {
	Name string
	// About says in words what the picture shows.
	About  string
	State  string
	Tone   Tone
	Float  string
	Height int
	Bars   []Bar
	Hidden int
}

// tail is how many characters at its end tell a container from others of the same project.
const tail = 10

// Head is the name but for its Tail; too little room shortens it.
func (l Lane) Head() string { return l.Name[:len(l.Name)-len(l.Tail())] }

// Tail is the end of the name, which always shows.
func (l Lane) Tail() string {
	runes := []rune(l.Name)
	return string(runes[max(0, len(runes)-tail):])
}

// Bar is one task. X, W: percent; Y, H: pixels.
type Bar struct {
	Title    string
	Tone     Tone
	X, W     string
	Y, H     int
	Cut      bool
	Open     bool
	Segments []Segment
	Label    string
	Wide     bool // there is room for the label on a small screen too
	// The deadline and what lies between it and the end; empty without.
	Deadline       string
	Beyond, Missed bool
	Spare, Late    *Stretch
	// Track is where spare time and deadline are drawn, pixels from the top.
	Track, Middle, Bottom int
}

// Segment is a part of a bar. Pattern is empty while it runs.
type Segment struct{ X, W, Pattern string }

// Stretch is a part of the line.
type Stretch struct{ X, W string }

// TableRow is a task in words.
type TableRow struct {
	Container, State, Start, End, Deadline, Float, Waited string
	Tone                                                  Tone
}

// Container is one row of the list of containers.
type Container struct {
	ID, Name, Image  string
	State            string // a word
	StateClass       string
	Notes            []string
	Deadline         string // relative
	DeadlineInput    string // as it can be typed
	ShareInput       string // as it can be typed
	Due              string // absolute
	Float, FloatWord string
	Tone             Tone
	Tasks            int
	Where            string
	Why              string
	CanPause         bool
	CanRelease       bool
	CanChange        bool
}

// Placement is the ranking of the nodes.
type Placement struct {
	Known                  bool
	Error, Method, Summary string
	Nodes                  []Node
	NodesLeftOut           int
	Reservations           []ReservationRow
	ReservationsLeftOut    int
}

// Node is one node of the ranking.
type Node struct {
	Rank, Name      string
	Candidate       bool
	GPU             string
	Reasons         []string
	MemoryFree      string
	Float           string
	Reserved        string
	GPUs            int
	FloatTone       Tone
	ReasonsLeftOut  int
	CandidateAnswer string
}

// ReservationRow is one promise in words.
type ReservationRow struct{ ID, Where, State, Memory, Deadline, Ends string }

// Decision is one decision in words.
type Decision struct {
	Time, Stamp string
	What, About string
	GPUs        []string
	Why, Error  string
	By          string
	Tone        Tone
	Symbol      string
}
