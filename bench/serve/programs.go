package serve

import (
	"embed"
	"time"

	"github.com/laxity/laxity/bench/program"
)

//go:embed *.py
var torchPrograms embed.FS

// kinds of program. On a simulated GPU a request takes 0.9 ms, a step 30 kernels of 3 ms, and a
// token is a request that comes at once. A text is a request of 100 kernels.
var kinds = map[role]program.Kind{
	server:  {File: "server.py", N: 1352, Kernels: 1, Gap: 30 * time.Millisecond},
	decode:  {File: "decode.py", N: 1352, Kernels: 1},
	text:    {File: "text.py", N: 1352, Kernels: 100, Gap: 400 * time.Millisecond},
	trainer: {File: "trainer.py", N: 2048, Kernels: 30},
}
