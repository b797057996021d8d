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

// SeveralMode says what is done with a container on several GPUs, and with the containers of a gang,
// where channels order them.
type SeveralMode string

// The ways.
const (
	SeveralNever SeveralMode = "never"  // it is left as it is
	SeveralAsOne SeveralMode = "as-one" // it is ordered, and goes off all of its GPUs and on again as one
)

// SeveralModes lists the values of SeveralMode.
var SeveralModes = []string{string(SeveralNever), string(SeveralAsOne)}

// MemoryMode says whether a part that acts on GPU memory is used.
type MemoryMode string

// The modes.
const (
	MemoryAuto MemoryMode = "auto" // where this machine can
	MemoryOff  MemoryMode = "off"
)

// MemoryModes lists the values of MemoryMode.
var MemoryModes = []string{string(MemoryAuto), string(MemoryOff)}
