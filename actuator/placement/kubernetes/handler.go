package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/laxity/laxity/actuator/placement"
)

// Question is a pod to be placed.
type Question struct {
	Request placement.Request
	// Image stands for the request's missing Estimate.
	Image               string
	Namespace, Pod, UID string
	// Nodes are the names of those that the scheduler leaves.
	Nodes []string
}

// Placer places pods.
type Placer interface {
	// Place reserves a GPU for the pod on the best of the nodes, in place of what was reserved under its
	// name before, and returns the node, empty if none can take the pod. The ranking is of those nodes
	// that are known. It MUST return an error rather than a part of them.
	Place(ctx context.Context, q Question) (node string, r placement.Ranking, err error)
	// Forget ends what was reserved under the name of the pod, which asks for nothing.
	Forget(ctx context.Context, q Question) error
}

const (
	// maxBytes bounds a question: 5,000 nodes, described in full, take 100 MB.
	maxBytes = 128 << 20
	// maxQuestions bounds those that are read at a time; a scheduler asks one after
	// another.
	maxQuestions = 2
)

// Register mounts POST …/filter behind gate: questions are large, and the answers tell who
// runs where. The gate MUST NOT refuse those that may ask because they ask often: kube-scheduler asks about
// every pod of the cluster, and would bind past us what it could not ask about (ignorable). maxQuestions
// bounds what they cost. Why the scheduler gets no node is in the answer, which is 200 all the same: so that it
// skips us (ignorable), or shows the reason as an event of the pod. Of an answer with another code it
// shows our address, which has the token in it.
func Register(r chi.Router, gate func(http.Handler) http.Handler, placer Placer, logger *slog.Logger) {
	x := extender{placer, logger, make(chan struct{}, maxQuestions)}
	r.Handle("POST /api/v1/kubernetes/filter", gate(x.one(x.filter)))
}

type extender struct {
	placer Placer
	log    *slog.Logger
	slots  chan struct{} // who is answered
}

// one answers one question in each slot, and that it cannot beyond.
func (x extender) one(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case x.slots <- struct{}{}:
			defer func() { <-x.slots }()
			next(w, r)
		default:
			write(w, FilterResult{Error: fmt.Sprintf("laxity: %d other questions are being answered", maxQuestions)})
		}
	})
}

func (x extender) filter(w http.ResponseWriter, r *http.Request) {
	args, ok := read(w, r)
	if !ok {
		return
	}
	result, err := x.result(r.Context(), args)
	if err != nil {
		x.log.Warn("the scheduler's question could not be answered", "pod", args.name(), "err", err)
		result = FilterResult{Error: "laxity: " + err.Error()}
	}
	write(w, result)
}

func (x extender) result(ctx context.Context, args Args) (out FilterResult, err error) {
	asked, err := args.candidates()
	if err != nil {
		return out, err
	}
	req, ours, invalid := RequestOf(args.Pod)
	for _, l := range invalid {
		x.log.Warn("what a pod asks for counts as not there", "pod", args.name(), "err", l)
	}
	m := args.Pod.Metadata
	q := Question{Request: req, Image: imageOf(args.Pod), Namespace: m.Namespace, Pod: m.Name, UID: m.UID}
	if !ours {
		if err := x.placer.Forget(ctx, q); err != nil {
			x.log.Warn("what was reserved for an earlier pod of this name stays until it expires", "pod", args.name(), "err", err)
		}
		out.keep(args, asked)
		return out, nil
	}
	for _, c := range asked {
		q.Nodes = append(q.Nodes, c.name)
	}
	placed, ranking, err := x.placer.Place(ctx, q)
	if err != nil {
		return out, err
	}
	return answer(args, asked, placed, ranking), nil
}

func (a Args) name() string { return a.Pod.Metadata.Namespace + "/" + a.Pod.Metadata.Name }

// read answers the client itself when it returns false.
func read(w http.ResponseWriter, r *http.Request) (Args, bool) {
	var args Args
	r.Body = http.MaxBytesReader(w, r.Body, maxBytes)
	if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
		http.Error(w, fmt.Sprintf("the body is no ExtenderArgs of kube-scheduler: %v", err), http.StatusBadRequest)
		return args, false
	}
	_, _ = io.Copy(io.Discard, r.Body)
	if args.Pod == nil {
		http.Error(w, "the question has no Pod: is this an extender call of kube-scheduler (extender/v1)?", http.StatusBadRequest)
		return args, false
	}
	return args, true
}

func write(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	// The scheduler is gone if this fails: there is nobody to tell.
	_ = json.NewEncoder(w).Encode(v)
}
