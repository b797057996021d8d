// Package intake accepts notifications: it stores alerts about this node in the inbox, and passes
// alerts about other nodes on to the actuators there.
//
// It imports actuator/webhook, actuator/inbox, actuator/forward and the standard library.
package intake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/laxity/laxity/actuator/forward"
	"github.com/laxity/laxity/actuator/inbox"
	"github.com/laxity/laxity/actuator/webhook"
)

// Intake accepts notifications. All fields but Forward are required.
type Intake struct {
	Inbox *inbox.Inbox
	// Forward passes alerts on; nil: no other node is known.
	Forward *forward.Forwarder
	// Node returns this node's name; empty: it is not known yet.
	Node func() string
	Now  func() time.Time
}

// Receive stores a notification durably and passes on the alerts of other nodes. When it
// returns nil, the message takes effect even if this process dies. Receive is idempotent:
// Alertmanager may repeat a message after an error.
func (i *Intake) Receive(ctx context.Context, m webhook.Message) error {
	if err := m.Validate(); err != nil {
		return err
	}
	if i.Forward == nil {
		return i.keep(m)
	}
	own, others, err := i.Forward.Split(ctx, i.Node(), m)
	if err != nil {
		return err
	}
	if len(own.Alerts) > 0 || own.TruncatedAlerts > 0 || len(others) == 0 {
		err = i.keep(own) // first: this node must not wait for others
	}
	return errors.Join(err, i.Forward.Pass(ctx, m, others))
}

func (i *Intake) keep(m webhook.Message) error {
	payload, err := json.Marshal(m)
	if err != nil {
		return err
	}
	err = i.Inbox.Put(payload, i.Now())
	if errors.Is(err, inbox.ErrFull) {
		most := i.Inbox.Bounds()
		return fmt.Errorf("%w (%d messages, %d bytes)", webhook.ErrFull, most.Messages, most.Bytes)
	}
	return err
}
