// Package run is `laxity run` and `laxity create`: it reads the arguments of `docker run` as
// Docker does, asks the actuator for a node, and starts the real docker there with what
// Laxity adds. It never talks to an engine itself, so every flag, context and credential of
// the user's docker works.
package run

import (
	"encoding/csv"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/task"
)

// Values of --node that name no node.
const (
	Auto  = "auto"  // the actuator chooses
	Local = "local" // docker as it is configured here, no actuator needed
)

// Simulated is the command that starts containers on a simulated GPU. It may have no image.
const Simulated = "sim run"

// Spec is a parsed command line.
type Spec struct {
	// Create makes the container without starting it.
	Create bool
	// Labels holds the laxity.* labels: by --deadline and --gpu-memory, or as
	// labels.
	Labels map[string]string
	// Node is Auto, Local or a name; Estimate the run time, as text; Actuator its
	// address and TokenFile the file with its token, empty for the default.
	Node, Estimate, Actuator, TokenFile string
	// Require is what --require asks for.
	Require Require
	// Socket is that of a simulated GPU; empty where none was named.
	Socket string
	// NoGPURequest: docker's own flags decide how the container gets its GPU.
	NoGPURequest bool
	// Flags are Docker's, as they were, without laxity.* labels and --cidfile.
	Flags []string
	Image string
	Args  []string
	// CIDFile is the user's own. Detach: -d was given.
	CIDFile string
	Detach  bool
	// ByHand is the flag that gives the container GPUs without regard to the placement; empty
	// if there is none.
	ByHand string
	// HandGPUs are the GPUs that such flags name, by index or UUID; empty where they name none, or all.
	HandGPUs []string
	// Help was asked for: nothing else is set.
	Help bool
}

// visibleGPUs is the variable in which NVIDIA's runtime reads which GPUs a container
// gets.
const visibleGPUs = "NVIDIA_VISIBLE_DEVICES"

// switches are the flags of docker run and create that take no value. All others take one. A
// test compares them with the installed docker.
var switches = []string{
	"detach", "disable-content-trust", "help", "init", "interactive", "no-healthcheck", "oom-kill-disable",
	"privileged", "publish-all", "quiet", "read-only", "rm", "sig-proxy", "tty", "use-api-socket",
}

// shortSwitches are those of one letter.
const shortSwitches = "diPqt"

// Parse reads the arguments after `run`, `create` or `sim run`.
func Parse(command string, args []string) (Spec, error) {
	s := Spec{Create: command == "create", Node: Auto, Labels: map[string]string{}}
	p := parser{spec: &s, rest: args}
	for len(p.rest) > 0 {
		done, err := p.next()
		if err != nil {
			return Spec{}, err
		}
		if s.Help {
			return Spec{Help: true}, nil
		}
		if done {
			break
		}
	}
	if s.Image == "" && command != Simulated {
		return Spec{}, fmt.Errorf("no image: laxity %s [flags] IMAGE [command]", command)
	}
	if _, invalid := task.ParseLabels(s.Labels); len(invalid) > 0 {
		return Spec{}, hint(invalid[0])
	}
	if s.Estimate != "" {
		if _, err := task.ParseDeadline(s.Estimate); err != nil {
			return Spec{}, fmt.Errorf("--estimate: %s", strings.Replace(err.Error(), "is not a deadline", "is no run time", 1))
		}
	}
	if s.Require != RequireNothing {
		if _, err := s.question(nil); err != nil {
			return Spec{}, err
		}
		if command == Simulated {
			return Spec{}, errors.New("--require: sim run asks no actuator; write laxity run --node=local --require")
		}
	}
	if command == Simulated {
		s.Node = Local
		if s.ByHand != "" {
			return Spec{}, fmt.Errorf("%s gives the container a real GPU: leave it out", s.ByHand)
		}
	}
	if s.ByHand != "" && s.Node != Local && !s.NoGPURequest {
		return Spec{}, fmt.Errorf("%s gives the container GPUs, and here the placement chooses the one that it gets: leave %[1]s out "+
			"(or write --node=local for docker as it is, or --gpu-request=none to hand GPUs out yourself)", s.ByHand)
	}
	return s, nil
}

// hint names the flag where the user may have written one.
func hint(l task.InvalidLabel) error {
	flag, ok := map[string]string{task.LabelDeadline: "--deadline", task.LabelGPUMemory: "--gpu-memory"}[l.Label]
	if !ok {
		return l
	}
	return fmt.Errorf("%s: %s", flag, l.Hint)
}

// parser walks along the arguments up to the image.
type parser struct {
	spec *Spec
	rest []string
}

func (p *parser) take() string {
	s := p.rest[0]
	p.rest = p.rest[1:]
	return s
}

// next reads one flag, or the image and all that follows it.
func (p *parser) next() (done bool, err error) {
	token := p.take()
	switch {
	case token == "--":
		if len(p.rest) > 0 {
			p.spec.Image, p.spec.Args = p.rest[0], p.rest[1:]
		}
		return true, nil
	case strings.HasPrefix(token, "--"):
		return false, p.long(token)
	case len(token) > 1 && token[0] == '-':
		return false, p.short(token)
	default:
		p.spec.Image, p.spec.Args = token, p.rest
		return true, nil
	}
}

func (p *parser) long(token string) error {
	name, value, given := strings.Cut(token[2:], "=")
	if name == "require" && !given {
		value, given = string(RequirePossible), true
	}
	if slices.Contains(switches, name) {
		on := !given || value == "true" || value == "1"
		p.spec.Detach = p.spec.Detach || name == "detach" && on
		p.spec.Help = p.spec.Help || name == "help" && on
		if name == "privileged" && on {
			p.spec.ByHand = "--privileged"
		}
		p.spec.Flags = append(p.spec.Flags, token)
		return nil
	}
	if !given {
		if len(p.rest) == 0 {
			return fmt.Errorf("--%s needs a value", name)
		}
		value = p.take()
	}
	return p.set(name, value)
}

func (p *parser) short(token string) error {
	for i, letter := range token[1:] {
		if strings.ContainsRune(shortSwitches, letter) {
			p.spec.Detach = p.spec.Detach || letter == 'd'
			continue
		}
		// The rest of the token is its value, or the next one is.
		value := strings.TrimPrefix(token[2+i:], "=")
		if i+2 >= len(token) {
			if len(p.rest) == 0 {
				return fmt.Errorf("-%c needs a value", letter)
			}
			value = p.take()
		}
		if i > 0 {
			p.spec.Flags = append(p.spec.Flags, token[:1+i])
		}
		switch letter {
		case 'l':
			return p.set("label", value)
		case 'e', 'v':
			name := map[rune]string{'e': "env", 'v': "volume"}[letter]
			p.spec.byHand(name, value)
		}
		p.spec.Flags = append(p.spec.Flags, "-"+string(letter), value)
		return nil
	}
	p.spec.Flags = append(p.spec.Flags, token)
	return nil
}

// set takes a flag that has a value.
func (p *parser) set(name, value string) error {
	s := p.spec
	switch name {
	case "deadline":
		return s.label(task.LabelDeadline, value)
	case "gpu-memory":
		return s.label(task.LabelGPUMemory, value)
	case "estimate":
		s.Estimate = value
	case "actuator.url":
		s.Actuator = value
	case "token.file":
		s.TokenFile = value
	case "socket":
		s.Socket = value
	case "node":
		if value == "" {
			return errors.New("--node: write auto, local or the name of a node (laxity nodes lists them)")
		}
		s.Node = value
	case "gpu-request":
		if value != "auto" && value != "none" {
			return fmt.Errorf("--gpu-request is %q: write auto or none", value)
		}
		s.NoGPURequest = value == "none"
	case "require":
		switch s.Require = Require(value); s.Require {
		case RequirePossible, RequireKnown:
		default:
			return fmt.Errorf("--require=%s: write --require, or --require=known", value)
		}
	case "cidfile":
		s.CIDFile = value
	case "label":
		if key, v, _ := strings.Cut(value, "="); strings.HasPrefix(key, task.LabelPrefix) {
			return s.label(key, v)
		}
		s.Flags = append(s.Flags, "--label", value)
	default:
		s.byHand(name, value)
		s.Flags = append(s.Flags, "--"+name, value)
	}
	return nil
}

// byHand notes the ways besides --privileged in which docker, its NVIDIA runtime and CDI give
// GPUs to a container. A value in an --env-file does not count, because the variable that we
// add overrides it.
func (s *Spec) byHand(name, value string) {
	key, _, _ := strings.Cut(value, "=")
	var gpus []string
	switch {
	case name == "gpus":
		s.ByHand = "--gpus"
		gpus = requested(value)
	case name == "env" && key == visibleGPUs:
		s.ByHand = "--env " + visibleGPUs
		gpus = container.VisibleGPUs([]string{value})
	case name == "device" && (strings.HasPrefix(value, "/dev/nvidia") || strings.HasPrefix(value, "nvidia.com/")):
		s.ByHand = "--device " + value
		gpus = container.GivenGPUs([]string{value}, nil, []string{value})
	case (name == "volume" || name == "mount") && strings.Contains(value, "/nvidia-container-devices/"):
		s.ByHand = "--" + name + " " + value
	}
	if !slices.Contains(gpus, "all") {
		s.HandGPUs = append(s.HandGPUs, gpus...)
	}
}

// requested are the GPUs that a value of docker's --gpus names, as in device=0 or "device=0,1",capabilities=compute.
func requested(value string) (gpus []string) {
	fields, err := csv.NewReader(strings.NewReader(value)).Read()
	if err != nil {
		return nil // docker says what is wrong
	}
	for _, f := range fields {
		if list, ok := strings.CutPrefix(f, "device="); ok {
			gpus = append(gpus, strings.Split(list, ",")...)
		}
	}
	return gpus
}

func (s *Spec) label(key, value string) error {
	if before, ok := s.Labels[key]; ok && before != value {
		return fmt.Errorf("%s is both %q and %q: write it once", key, before, value)
	}
	s.Labels[key] = value
	return nil
}
