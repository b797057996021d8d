package config

// HoldMode says how containers are kept from computing.
type HoldMode string

// The ways to hold.
const (
	HoldAuto     HoldMode = "auto"     // by channels where they work, else by pausing
	HoldChannels HoldMode = "channels" // by time slices, and channels off and on; an error where that does not work
	HoldPause    HoldMode = "pause"    // by pausing
)

// HoldModes lists the values of HoldMode.
var HoldModes = []string{string(HoldAuto), string(HoldChannels), string(HoldPause)}

// Channels reports whether channels are wanted.
func (h HoldMode) Channels() bool { return h == "" || h == HoldAuto || h == HoldChannels }

// MemoryMode says whether a part that acts on GPU memory is used.
type MemoryMode string

// The modes.
const (
	MemoryAuto MemoryMode = "auto" // where this machine can
	MemoryOff  MemoryMode = "off"
)

// MemoryModes lists the values of MemoryMode.
var MemoryModes = []string{string(MemoryAuto), string(MemoryOff)}
