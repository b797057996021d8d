package forward

import (
	"context"
	"fmt"

	"github.com/laxity/laxity/actuator/admission"
	"github.com/laxity/laxity/actuator/nodes"
	"github.com/laxity/laxity/actuator/placement/api"
)

// Ask passes the question on to the actuator of the node that it names. directory may be nil.
func Ask(ctx context.Context, directory Directory, q admission.Question) (admission.Answer, error) {
	var peer nodes.Node
	if directory != nil {
		peer, _ = directory.Find(q.Node)
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
