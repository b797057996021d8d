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

// Ranker ranks all nodes for a request. It MUST return an error rather than a
// part of the nodes.
type Ranker interface {
	Rank(ctx context.Context, req placement.Request) (placement.Ranking, error)
}

const (
	// maxBytes bounds a question: 5,000 nodes, described in full, take 100 MB.
	maxBytes = 128 << 20
	// maxQuestions bounds those that are read at a time; a scheduler asks one after
	// another.
	maxQuestions = 2
)

// Register mounts POST …/filter and …/prioritize behind gate: questions are large,
// and the answers tell who runs where. What is wrong with a pod, or with our
// knowledge, is in the answer, which is 200 all the same for filter: so that the
// scheduler shows it as an event of the pod. prioritize has no place for an error;
// there it is a 4xx or 503, at which the scheduler prefers no node.
func Register(r chi.Router, gate func(http.Handler) http.Handler, ranker Ranker, logger *slog.Logger) {
	x := extender{ranker, logger, make(chan struct{}, maxQuestions)}
	r.Handle("POST /api/v1/kubernetes/filter", gate(x.one(x.filter)))
	r.Handle("POST /api/v1/kubernetes/prioritize", gate(x.one(x.prioritize)))
}

type extender struct {
	ranker Ranker
	log    *slog.Logger
	slots  chan struct{} // who is answered
}

// one answers one question in each slot, and 503 beyond.
func (x extender) one(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case x.slots <- struct{}{}:
			defer func() { <-x.slots }()
			next(w, r)
		default:
			http.Error(w, "other questions are being answered; ask again", http.StatusServiceUnavailable)
		}
	})
}

func (x extender) filter(w http.ResponseWriter, r *http.Request) {
	args, ok := read(w, r)
	if !ok {
		return
	}
	result, err := x.filterResult(r.Context(), args)
	if err != nil {
		x.log.Warn("the scheduler's question could not be answered", "pod", args.name(), "err", err)
		result = FilterResult{Error: "laxity: " + err.Error()}
	}
	write(w, result)
}

func (x extender) filterResult(ctx context.Context, args Args) (FilterResult, error) {
	req, ours, err := RequestOf(args.Pod)
	if err != nil {
		return FilterResult{}, err
	}
	if !ours {
		out := FilterResult{}
		kept, err := args.candidates()
		out.keep(args, kept)
		return out, err
	}
	ranking, err := x.ranker.Rank(ctx, req)
	if err != nil {
		return FilterResult{}, err
	}
	return filter(args, ranking)
}

func (x extender) prioritize(w http.ResponseWriter, r *http.Request) {
	args, ok := read(w, r)
	if !ok {
		return
	}
	req, ours, err := RequestOf(args.Pod)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var ranking placement.Ranking
	if ours {
		if ranking, err = x.ranker.Rank(r.Context(), req); err != nil {
			x.log.Warn("the scheduler's question could not be answered", "pod", args.name(), "err", err)
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
	}
	list, err := prioritize(args, ranking)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	write(w, list)
}

func (a Args) name() string { return a.Pod.Metadata.Namespace + "/" + a.Pod.Metadata.Name }

// read answers the client itself when it returns false.
func read(w http.ResponseWriter, r *http.Request) (Args, bool) {
	var args Args
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBytes)).Decode(&args); err != nil {
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
