package check

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/laxity/laxity/actuator/nodes"
)

// nodesFacts are what nodes.yaml says, and who of it answers.
type nodesFacts struct {
	file string
	err  error
	list nodes.List
	// answers holds, for each node, why its exporter and its actuator do not; nil
	// where they do.
	answers []answer
}

type answer struct{ exporter, actuator error }

func gatherNodes(ctx context.Context, file string) (f nodesFacts) {
	if f.file = file; file == "" {
		return f
	}
	if f.list, f.err = nodes.Read(file); f.err != nil {
		return f
	}
	for _, n := range f.list {
		client, err := n.Client()
		f.answers = append(f.answers, answer{healthy(ctx, client, err, n.Exporter), healthy(ctx, client, err, n.Actuator)})
	}
	return f
}

// healthy asks /-/healthy; an address that is not known is not asked.
func healthy(ctx context.Context, client *http.Client, err error, base string) error {
	if err != nil || base == "" {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/-/healthy", http.NoBody)
	if err != nil {
		return err
	}
	began := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s after %v", base, resp.Status, time.Since(began).Round(time.Millisecond))
	}
	return nil
}

func (f nodesFacts) judge() []Finding {
	out := findings{area: "Nodes"}
	switch {
	case f.file == "":
		out.add(Skip, "nodes.yaml", "none given", "", "--nodes.file, where the actuator places containers on other machines")
		return out.list
	case f.err != nil:
		out.add(Fail, "nodes.yaml", f.err.Error(), "the actuator keeps the list that it has, or does not start", "")
		return out.list
	}
	for i, n := range f.list {
		a := f.answers[i]
		switch {
		case a.exporter != nil:
			out.add(Fail, n.Name, "exporter: "+a.exporter.Error(), "its tasks cannot be seen from here", "start laxity-exporter there; check address and http_config")
		case a.actuator != nil:
			out.add(Fail, n.Name, "actuator: "+a.actuator.Error(), "alerts about it cannot be passed on", "start laxity-actuator there; check address and http_config")
		case n.Exporter == "" && n.Actuator == "" && !n.Docker.Known():
			out.add(Warn, n.Name, "no address at all", "the entry has no effect", "give it exporter, actuator and docker")
		case !n.Docker.Known():
			out.add(Warn, n.Name, "no Docker engine", "laxity run cannot create a container there", "docker: {host: ssh://user@"+n.Name+"} or {context: NAME}")
		default:
			out.ok(n.Name, "answers")
		}
	}
	return out.list
}
