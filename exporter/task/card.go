package task

import "time"

// Card is the condition of one card. With MIG it is the whole card; GPU.Parent names it. What the
// card does not report is absent.
type Card struct {
	UUID  string `json:"uuid"`
	Index int    `json:"index"`

	// Power is W over the driver's last sample period, PowerLimit W at most.
	Power      *float64 `json:"power_watts,omitempty"`
	PowerLimit *float64 `json:"power_limit_watts,omitempty"`
	// Energy is J since the driver was loaded.
	Energy *float64 `json:"energy_joules,omitempty"`
	// Temperature is by place: gpu, memory. Clock is by part: sm, memory.
	Temperature map[string]float64 `json:"temperature_celsius,omitempty"`
	Clock       map[string]float64 `json:"clock_hertz,omitempty"`
	// Throttled says for each reason whether it lowers the clocks now.
	Throttled map[string]bool `json:"throttled,omitempty"`
	// Xids counts the driver's errors since the exporter began, by number.
	Xids map[uint64]uint64 `json:"xid_errors,omitempty"`
	// LastXids is when the last error of each number was read from the driver, within a second or so.
	LastXids map[uint64]time.Time `json:"xid_last,omitempty"`
	// ECC counts memory errors over the card's life: corrected, uncorrected.
	ECC map[string]uint64 `json:"ecc_errors,omitempty"`
	// PCIe is bytes a second over a recent sample, NVLink bytes since the driver was loaded,
	// both by direction: transmit, receive.
	PCIe   map[string]float64 `json:"pcie_bytes_per_second,omitempty"`
	NVLink map[string]uint64  `json:"nvlink_bytes,omitempty"`

	// Switches is what was last read of the card's context switches: all of them, or, where there are
	// many, those of a tenth of each second. Where it is absent GPU-seconds are by the driver's samples.
	Switches *Switches `json:"context_switches,omitempty"`

	// Unattributed is J since the exporter began that are no container's, by reason: idle,
	// other (processes outside of containers), unknown.
	Unattributed map[string]float64 `json:"unattributed_energy_joules,omitempty"`
	// OtherSeconds is the time since the exporter began in which processes outside of
	// containers computed.
	OtherSeconds *float64 `json:"other_gpu_seconds,omitempty"`
	// Uses is what containers had of the card since the exporter began. One that is gone
	// stays for 15 minutes.
	Uses []Use `json:"uses,omitempty"`
}

// Switches are the context switches of a card in some time.
type Switches struct {
	// From is when that time began, by the exporter's wall clock; absent if nothing was read, as on a card with one
	// process.
	From time.Time `json:"from,omitzero"`
	// Seconds is how long it was.
	Seconds float64 `json:"seconds,omitempty"`
	// Rate is how many contexts came onto the card each second.
	Rate float64 `json:"per_second"`
	// Used is the part of that time in which each container's work was on the card, 0–1, by container id.
	Used map[string]float64 `json:"used,omitempty"`
	// Stays is for how many seconds a context of each container stayed each time, on average, by
	// container id. One stays until another wants the card and may have it.
	Stays map[string]float64 `json:"stay_seconds,omitempty"`
}

// Use is what one container had of a card.
type Use struct {
	ContainerID string `json:"container_id"`
	Container   string `json:"container"`
	// GPUSeconds is the time in which its work was on the GPU. Under time slicing the sum over
	// containers is at most the time that passed.
	GPUSeconds float64 `json:"gpu_seconds"`
	// Energy is J beyond the card's idle power; absent where the card reports none.
	Energy *float64 `json:"energy_joules,omitempty"`
}
