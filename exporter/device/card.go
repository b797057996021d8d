package device

import (
	"context"
	"time"
)

// Cards reads what the cards of one node report about their own condition. Its calls may be
// slow, so it is apart from Device: it MUST be safe to use while another goroutine uses the
// Device that it belongs to.
type Cards interface {
	// Read returns every card that answers. A query that fails MUST NOT cost the others:
	// what it asked for is absent. It MUST return an error when no card answers. After an
	// error a later Read MUST try again from the beginning.
	Read(ctx context.Context) (CardReading, error)
	// Close releases the driver. Afterwards Read MUST return an error, and a second Close
	// MUST do nothing.
	Close() error
}

// WithCards is a Device that knows its cards' condition.
type WithCards interface {
	// Cards opens a reader of its own.
	Cards() (Cards, error)
}

// CardReading is the condition of the cards at one moment.
type CardReading struct {
	Time  time.Time `json:"time"` // when the reading began
	Cards []Card    `json:"cards"`
}

// Card is what a card reports of itself; with MIG it is the whole card, never an instance. What the
// card does not report is nil, or absent from its map.
type Card struct {
	UUID  string `json:"uuid"`
	Index int    `json:"index"`
	MIG   bool   `json:"mig,omitempty"` // its work runs on MIG instances

	Power      *float64 `json:"power,omitempty"`       // W, mean of the driver's last sample period
	PowerLimit *float64 `json:"power_limit,omitempty"` // W, in force now
	// Energy is J since the driver was loaded. It begins at 0 with the driver.
	Energy *float64 `json:"energy,omitempty"`
	// Temperature is °C, by GPUSensor and MemorySensor.
	Temperature map[string]float64 `json:"temperature,omitempty"`
	// Clock is Hz, by SMClock and MemoryClock.
	Clock map[string]float64 `json:"clock,omitempty"`
	// Throttled says of each ThrottleReason whether it lowers the clocks now.
	Throttled map[string]bool `json:"throttled,omitempty"`
	// Xids counts errors by their number since the reader was opened. It is nil where the
	// driver does not report them, and empty while there was none.
	Xids map[uint64]uint64 `json:"xids"`
	// LastXids is when the last error of each number was read from the driver.
	LastXids map[uint64]time.Time `json:"last_xids,omitempty"`
	// ECC counts errors over the card's life, by Corrected and Uncorrected.
	ECC map[string]uint64 `json:"ecc,omitempty"`
	// PCIe is bytes a second over a recent sample of 20 ms, by Transmit and Receive.
	PCIe map[string]float64 `json:"pcie,omitempty"`
	// NVLink is bytes over all links since the driver was loaded, by Transmit and Receive,
	// without what the protocol adds.
	NVLink map[string]uint64 `json:"nvlink,omitempty"`

	// SM is the share of the multiprocessors' time that each process used since the last
	// reading, 0–1, by PID in the host's namespace: the mean of the driver's samples. It has
	// processes that have ended meanwhile. A process that is absent used nothing. It is nil
	// where the driver does not report it (MIG).
	SM map[int]float64 `json:"sm"`
	// Present is the share of Switches' time in which a context of each process was on the card, 0–1,
	// by PID in the host's namespace. Under time slicing at most one is. Where
	// others waited it is how long the process computed; where nobody did it may have been idle.
	// It is nil where the card does not report it, and where nothing switched.
	Present map[int]float64 `json:"present,omitempty"`
	// Switches is what was read of context switches: of all of the time since the last reading, or,
	// where there are many, of a tenth of a second. It is nil where the card does not report it.
	Switches *Switches `json:"switches,omitempty"`
}

// Switches are the context switches of a card in some time.
type Switches struct {
	From    time.Time `json:"from"`
	Seconds float64   `json:"seconds"`
	// Rate is how many contexts came onto the card each second. Of says how many of them each
	// process's were, by PID in the host's namespace.
	Rate float64         `json:"rate"`
	Of   map[int]float64 `json:"of,omitempty"`
}

// The keys of Card's maps.
const (
	GPUSensor    = "gpu"
	MemorySensor = "memory"
	SMClock      = "sm"
	MemoryClock  = "memory"
	Corrected    = "corrected"
	Uncorrected  = "uncorrected"
	Transmit     = "transmit"
	Receive      = "receive"
)

// ThrottleReasons lists why clocks are lower than they could be, by what is wrong: at its power
// limit; hot; slowed by the board's power supply, or by something outside the card; as slow as
// another card of its group. Clocks that are low because nothing runs, or because somebody
// set them, are no throttling.
var ThrottleReasons = []string{"power_cap", "thermal", "hardware_thermal", "hardware_power_brake", "hardware", "sync_boost"}
