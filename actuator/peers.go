package actuator

import (
	"cmp"
	"context"
	"fmt"

	"github.com/laxity/laxity/actuator/admission"
	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/forward"
	"github.com/laxity/laxity/actuator/intake"
	"github.com/laxity/laxity/actuator/nodes"
	"github.com/laxity/laxity/actuator/placement/api"
)

// openIntake makes the intake. With a list of peers it passes on alerts about other nodes.
func (a *Actuator) openIntake() (err error) {
	a.intake = &intake.Intake{Inbox: a.inbox, Node: func() string { return cmp.Or(a.o.Node, a.State().Node) }, Now: a.o.Now}
	if a.o.Peers == nil {
		return nil
	}
	a.intake.Forward, err = forward.New(forward.Options{
		Directory: a.o.Peers, DryRun: a.o.DryRun, Decide: func(d decision.Decision) { a.decisions.Add(d) },
		Logger: a.log, Now: a.o.Now,
	})
	return err
}

// Admission answers whether a container that does not run yet could keep a deadline or share. It
// asks the actuator of another node about that node, if it is known.
func (a *Actuator) Admission(ctx context.Context, q admission.Question) (admission.Answer, error) {
	if q.Node == "" || q.Node == cmp.Or(a.o.Node, a.State().Node) {
		return a.arbiter.Admission(ctx, q)
	}
	return askPeer(ctx, a.o.Peers, q)
}

// askPeer asks the actuator of the node that the question names. peers may be nil.
func askPeer(ctx context.Context, peers forward.Directory, q admission.Question) (admission.Answer, error) {
	var peer nodes.Node
	if peers != nil {
		peer, _ = peers.Find(q.Node)
	}
	if peer.Actuator == "" {
		return admission.Answer{}, fmt.Errorf("node %s: %w: give its actuator in the list of nodes (--nodes.file)", q.Node, admission.ErrNoSuchPlace)
	}
	transport, err := peer.Client()
	if err != nil {
		return admission.Answer{}, err
	}
	defer transport.CloseIdleConnections()
	client, err := api.NewClient(peer.Actuator, transport)
	if err != nil {
		return admission.Answer{}, err
	}
	q.Node = "" // the peer must answer for itself, and not pass the question on
	answer, err := client.Admission(ctx, q)
	if answer.Node = peer.Name; err != nil {
		return admission.Answer{}, fmt.Errorf("node %s: %w", peer.Name, err)
	}
	return answer, nil
}
