package docs_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/laxity/laxity/actuator/placement/swarm"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/reference"
)

// label is one that a person writes, or that Laxity writes.
type label struct{ name, meaning, standard, invalid string }

// onContainers are read; onNodes are written on the nodes of a Docker swarm.
var (
	onContainers = []label{
		{task.LabelDeadline, "Deadline of each GPU task, from its start: a Go duration (`9s`, `250ms`) or a number of seconds, above 0. It can be changed while the container runs: `laxity deadline`.", "none", "no deadline"},
		{task.LabelGPUMemory, "GPU memory that all of its processes together may hold on each GPU, contexts included: `4GiB`, `512MiB`, or bytes. Its allocations may then wait or be refused; those of a container without it are let alone, unless the card is divided (`--memory-share`).", "no limit", "no limit; `laxity run` refuses"},
		{task.LabelShare, "Share of a GPU's time that it is sure of while others want it: `30%`. Who leaves it unused lends it. Shares and the batch floor that add up to more than 100 % on a GPU are reported, and cut in proportion.", "no share", "no share"},
		{task.LabelPause, "`allow`, or `never`: never held, paused, swapped or refused memory.", "`allow`", "`never`"},
		{task.LabelClass, "`deadline`, or `batch`: gives way to those with deadlines at once, and gets a floor (`--batch-floor`) while they compute.", "`deadline` with a deadline, else `batch`", "the default"},
		{task.LabelGang, "The job of which this container is one part: its ranks wait for each other. Containers with the same name (on Kubernetes: of one namespace) on one node have one place in the order, that of the part that comes last, and go off and on together ([several GPUs](../several-gpus.md)). Deadline, share, class, release and pause must be the same on each; else it is reported, and all of them are left as they are.", "none", "no gang"},
		{task.LabelRelease, "What one task is: `process` (from its first GPU context to its end), or `busy` (each busy interval of a server).", "`process`", "the default"},
	}
	onNodes = []label{
		{swarm.LabelProvisionable, "1 while the node takes new containers, else 0 (P2's nodeState).", "", ""},
		{swarm.LabelRank, "Its place in the ranking, from 10, the best, to 1; 0 when it takes nothing.", "", ""},
		{swarm.LabelNode, "Read, not written: the node's name in metrics, where it differs from the swarm's.", "the host name", ""},
	}
)

func TestReferenceOfLabels(t *testing.T) {
	documented := map[string]bool{task.LabelPrefix: true}
	var b strings.Builder
	b.WriteString("# Labels\n\nWhat a person writes on a container (`docker run --label …`, `nerdctl run --label …`). Only a container with at least one of them is ever\nacted on; the others are observed. What cannot be read is reported once: metric\n`laxity_exporter_invalid_labels`, alert `LaxityLabelInvalid`, one line in the exporter's log. A name\n`laxity.…` that is not in this table is reported too, and counts for nothing. Labels of a container cannot be changed\nafter it was made.\n\n| label | meaning | default | what cannot be read counts as |\n|---|---|---|---|\n")
	for _, l := range onContainers {
		documented[l.name] = true
		b.WriteString("| `" + l.name + "` | " + reference.Cell(l.meaning) + " | " + l.standard + " | " + l.invalid + " |\n")
	}
	b.WriteString("\nOn a pod of Kubernetes write them as annotations `laxity.dev/…` with the same names: `laxity.dev/deadline: 9s`. They count for\neach container of the pod. The labels above count there too, of the pod and of its containers; the annotation comes\nfirst ([containerd](../../exporter/container/containerd/README.md)).\n")
	b.WriteString("\nOn the nodes of a Docker swarm, with `laxity-actuator --swarm`:\n\n| label | meaning |\n|---|---|\n")
	for _, l := range onNodes {
		documented[l.name] = true
		b.WriteString("| `" + l.name + "` | " + reference.Cell(l.meaning) + " |\n")
	}
	reference.Keep(t, "labels.md", b.String())

	inCode := map[string]bool{}
	for _, l := range literals(t, "exporter/task", "actuator", "cmd/laxity/internal/run") {
		if regexp.MustCompile(`^laxity\.[a-z-]*$`).MatchString(l.text) {
			inCode[l.text] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(inCode)) {
		if !documented[name] {
			t.Errorf("label %s is in the code and not in docs/labels_test.go: describe it there", name)
		}
	}
}
