package cudaprobe

import (
	"github.com/cilium/ebpf/asm"

	"github.com/laxity/laxity/internal/cudaprobe/cudafile"
)

// A node that is added to a graph by hand may ask for memory, which the process gets
// when the graph is launched: then only does the ledger show it. Until then it counts
// in poolValue.Graphs, kept by graph; one that is made ready hands it on to what is
// launched. The driver makes a graph that has such nodes ready once at a time.
//
// The probes that follow this lie on launches, too. So a process has them once it adds
// its first such node, about which somebody is asked in any case.

// A call about a graph: the first two arguments, the stack, and the kind of function.
const graphFirst, graphSecond, graphStack, graphKind, graphCallSize = 0, 8, 16, 24, 32

// OfGraph reports whether the call adds a node to a graph, which gets its memory when
// the graph is launched.
func (c Call) OfGraph() bool {
	return c.Kind >= cudafile.AddMemNode && c.Kind <= cudafile.AddNodeOnSixth
}

// FollowGraphs follows what becomes of the memory of a process's graphs, from now on.
// Nodes that it adds are held until then. Doing it twice is once.
func (g *MemoryGuard) FollowGraphs(pid int) error {
	var v guardedValue
	if err := g.maps.guarded.Lookup(uint32(pid), &v); err == nil && v.Follows != 0 {
		return nil
	}
	if err := g.further(pid, g.attachToGraphs); err != nil {
		return err
	}
	return g.change(pid, func(v *guardedValue) { v.Follows = 1 })
}

func (g *MemoryGuard) attachToGraphs(file *cudafile.File, pid int) (links, error) {
	calls := []cudafile.Kind{cudafile.GraphMade, cudafile.GraphRun}
	return g.put(file, pid, []put{
		{calls, g.programs.graphDone, true}, // before the entries, so that each of those has its return
		{calls, g.programs.graphCalled, false},
		{[]cudafile.Kind{cudafile.GraphGone}, g.programs.graphGone, false},
	})
}

// ifNode goes on at otherwise unless the call adds a node to a graph.
func (b *builder) ifNode(otherwise string) {
	b.add(
		asm.LoadMem(asm.R1, frame, callTo+cKind, asm.Word),
		asm.JLT.Imm(asm.R1, int32(cudafile.AddMemNode), otherwise),
		asm.JGT.Imm(asm.R1, int32(cudafile.AddNodeOnSixth), otherwise),
	)
}

// ofNode puts the graph that a node is added to, and the place of its parameters, into
// the call.
func (b *builder) ofNode() {
	b.ifNode("no node")
	b.add(asm.LoadMem(asm.R2, regs, ptSI, asm.DWord))
	b.store(cOut, asm.R2, asm.DWord)
	b.add(
		asm.LoadMem(asm.R2, regs, ptR8, asm.DWord),
		asm.JEq.Imm(asm.R1, int32(cudafile.AddMemNode), "parameters"),
		asm.Add.Imm(asm.R2, nodeParams),
		asm.JEq.Imm(asm.R1, int32(cudafile.AddNodeOnFifth), "parameters"),
		asm.LoadMem(asm.R2, regs, ptR9, asm.DWord),
		asm.Add.Imm(asm.R2, nodeParams),
	)
	b.label("parameters")
	b.store(cReturn, asm.R2, asm.DWord)
	b.label("no node")
}

// followed lets somebody be asked about a node of a process whose graphs nobody
// follows. The register task must point to the process's guardedValue.
func (b *builder) followed() {
	b.ifNode("followed")
	b.add(asm.LoadMem(asm.R1, task, guardedFollows, asm.DWord), asm.JEq.Imm(asm.R1, 0, "beyond"))
	b.label("followed")
}

// noted notes a node that was added to the graph in the register task, with as many
// bytes as state says.
func (b *builder) noted(m memoryMaps) {
	b.ifNode("noted")
	b.add(asm.LoadMem(asm.R1, regs, ptAX, asm.Word), asm.JNE.Imm(asm.R1, 0, "noted"))
	b.lookup(m.guarded, evPID)
	b.add(
		asm.JEq.Imm(asm.R0, 0, "noted"),
		asm.LoadMem(asm.R1, asm.R0, guardedFollows, asm.DWord),
		asm.JEq.Imm(asm.R1, 0, "noted"), // it would count for ever
	)
	b.shared(m, "noted")
	b.addToGraph(m, "noted")
	b.inGraphs(m, false, "noted")
	b.label("noted")
}

// The latest node that got a pointer: its graph, the stage then, and its bytes.
const nodeGraph, nodeStage, nodeOfBytes, nodeSize = 0, 8, 16, 24

// shared leaves in state what the node takes beyond a former one, of the same graph and
// at the same address: the driver gives memory again that is freed within the graph. It
// goes on at none if that is nothing. The graph is in the register task.
func (b *builder) shared(m memoryMaps, none string) {
	b.add(
		asm.StoreMem(frame, buffer+nodeGraph, task, asm.DWord),
		asm.StoreMem(frame, buffer+nodeOfBytes, state, asm.DWord),
	)
	b.lookup(m.pools, evPID)
	b.add(
		asm.JEq.Imm(asm.R0, 0, none),
		asm.LoadMem(asm.R1, asm.R0, poolStage, asm.DWord), asm.StoreMem(frame, buffer+nodeStage, asm.R1, asm.DWord),
		asm.LoadMem(asm.R1, frame, evPID, asm.Word), asm.StoreMem(frame, key16, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R1, 0), asm.StoreMem(frame, key16+8, asm.R1, asm.DWord),
		asm.LoadMem(asm.R4, frame, callTo+cReturn, asm.DWord),
	)
	b.readUser(key16+8, 8, asm.R4, nodePointer)
	b.add(asm.JNE.Imm(asm.R0, 0, "alone"))
	b.lookup(m.nodes, key16)
	b.add(asm.JEq.Imm(asm.R0, 0, "first there"))
	for _, at := range []int16{nodeGraph, nodeStage} {
		b.add(
			asm.LoadMem(asm.R1, asm.R0, at, asm.DWord),
			asm.LoadMem(asm.R2, frame, buffer+at, asm.DWord),
			asm.JNE.Reg(asm.R1, asm.R2, "first there"),
		)
	}
	b.add(
		asm.LoadMem(asm.R1, asm.R0, nodeOfBytes, asm.DWord),
		asm.JGE.Reg(asm.R1, state, none),
		asm.StoreMem(asm.R0, nodeOfBytes, state, asm.DWord),
		asm.Sub.Reg(state, asm.R1),
		asm.Ja.Label("alone"),
	)
	b.label("first there")
	b.update(m.nodes, key16, buffer)
	b.label("alone")
}

// addToGraph adds state to what a graph will get, whose handle is in task.
func (b *builder) addToGraph(m memoryMaps, otherwise string) {
	b.graphKey()
	b.lookup(m.graphs, key16)
	b.add(
		asm.JEq.Imm(asm.R0, 0, "first of graph"),
		asm.Mov.Reg(asm.R1, state),
		atomicOp(asm.AddAtomic, asm.R0, asm.R1, 0),
		asm.Ja.Label("added"),
	)
	b.label("first of graph")
	b.add(asm.StoreMem(frame, buffer, state, asm.DWord))
	b.update(m.graphs, key16, buffer)
	b.add(asm.JNE.Imm(asm.R0, 0, otherwise))
	b.label("added")
}

// graphKey makes a key of the process and the handle in task.
func (b *builder) graphKey() {
	b.add(
		asm.LoadMem(asm.R1, frame, evPID, asm.Word), asm.StoreMem(frame, key16, asm.R1, asm.DWord),
		asm.StoreMem(frame, key16+8, task, asm.DWord),
	)
}

// takeGraph takes away what is kept of the handle in task, into state, and begins
// another stage. Of two at once one goes on.
func (b *builder) takeGraph(m memoryMaps) {
	b.graphKey()
	b.lookup(m.graphs, key16)
	b.add(asm.JEq.Imm(asm.R0, 0, "exit"), asm.LoadMem(state, asm.R0, 0, asm.DWord))
	b.delete(m.graphs, key16)
	b.add(asm.JNE.Imm(asm.R0, 0, "exit"))
	b.countInPool(m, poolStage)
}

// inGraphs adds state to what the process's graphs will get, or takes it off.
func (b *builder) inGraphs(m memoryMaps, off bool, otherwise string) {
	b.lookup(m.pools, evPID)
	if off {
		b.add(asm.JEq.Imm(asm.R0, 0, otherwise), asm.Mov.Imm(asm.R1, 0), asm.Sub.Reg(asm.R1, state))
	} else {
		b.add(asm.JEq.Imm(asm.R0, 0, otherwise), asm.Mov.Reg(asm.R1, state))
	}
	b.add(atomicOp(asm.AddAtomic, asm.R0, asm.R1, poolGraphs))
}

// graphCalled runs when a graph is made ready or launched. Its cookie is the kind.
func graphCalled(m memoryMaps) asm.Instructions {
	b := &builder{maps: m.maps}
	b.add(asm.Mov.Reg(regs, asm.R1))
	b.who()
	b.kind()
	b.add(asm.StoreMem(frame, buffer+graphKind, asm.R0, asm.DWord))
	for _, one := range []struct {
		to   int16
		from int16
	}{{graphFirst, ptDI}, {graphSecond, ptSI}, {graphStack, ptSP}} {
		b.add(asm.LoadMem(asm.R1, regs, one.from, asm.DWord), asm.StoreMem(frame, buffer+one.to, asm.R1, asm.DWord))
	}
	b.update(m.graphed, evTID, buffer)
	return b.finish()
}

// graphDone runs when that has been done: from the return of a launch on the ledger
// shows the graph's memory.
func graphDone(m memoryMaps) asm.Instructions {
	b := &builder{maps: m.maps}
	b.add(asm.Mov.Reg(regs, asm.R1))
	b.who()
	b.ifReturns(m.graphed, graphStack)
	b.add(
		asm.LoadMem(asm.R1, asm.R0, graphFirst, asm.DWord), asm.StoreMem(frame, callTo+cOut, asm.R1, asm.DWord),
		asm.LoadMem(task, asm.R0, graphSecond, asm.DWord),
		asm.LoadMem(state, asm.R0, graphKind, asm.DWord),
	)
	b.delete(m.graphed, evTID)
	b.add(
		asm.LoadMem(asm.R1, regs, ptAX, asm.Word), asm.JNE.Imm(asm.R1, 0, "exit"),
		asm.JEq.Imm(state, int32(cudafile.GraphMade), "made"),
		asm.LoadMem(task, frame, callTo+cOut, asm.DWord),
	)
	b.takeGraph(m)
	b.inGraphs(m, true, "exit")
	b.add(asm.Ja.Label("exit"))

	b.label("made")
	b.takeGraph(m)
	b.add(asm.LoadMem(asm.R4, frame, callTo+cOut, asm.DWord), asm.Mov.Imm(asm.R1, 0), asm.StoreMem(frame, buffer, asm.R1, asm.DWord))
	b.readUser(buffer, 8, asm.R4, 0)
	b.add(asm.LoadMem(task, frame, buffer, asm.DWord))
	b.addToGraph(m, "exit")
	return b.finish()
}

// graphGone runs when a graph is destroyed: what it was not made ready for it will
// not get.
func graphGone(m memoryMaps) asm.Instructions {
	b := &builder{maps: m.maps}
	b.add(asm.LoadMem(task, asm.R1, ptDI, asm.DWord))
	b.who()
	b.takeGraph(m)
	b.inGraphs(m, true, "exit")
	return b.finish()
}

// forgetGraphs drops what is known of a process's graphs.
func (g *MemoryGuard) forgetGraphs(pid int) {
	forgetOf(g.maps.graphs, pid)
	forgetOf(g.maps.nodes, pid)
}
