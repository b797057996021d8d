package sim_test

import (
	"testing"

	"github.com/laxity/laxity/exporter/device/devicetest"
	"github.com/laxity/laxity/exporter/device/sim"
	"github.com/laxity/laxity/exporter/device/sim/simtest"
)

func TestConformance(t *testing.T) {
	for name, opts := range devicetest.Shapes() {
		opts.ContextTime = -1
		t.Run(name, func(t *testing.T) {
			devicetest.Run(t, func(t *testing.T) devicetest.Rig {
				gpu, err := sim.New(opts)
				if err != nil {
					t.Fatal(err)
				}
				return devicetest.SimRig(gpu, gpu.Device())
			})
		})
		t.Run(name+" by socket", func(t *testing.T) {
			devicetest.Run(t, func(t *testing.T) devicetest.Rig {
				s := simtest.Start(t, opts)
				return devicetest.SimRig(s.GPU, s.Dial(t))
			})
		})
	}
}
