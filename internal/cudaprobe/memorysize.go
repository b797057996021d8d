package cudaprobe

import (
	"fmt"

	"github.com/cilium/ebpf/asm"

	"github.com/laxity/laxity/internal/cudaprobe/cudafile"
)

// Numbers of the driver's interface (cuda.h).
const (
	locationDevice = 1 // CU_MEM_LOCATION_TYPE_DEVICE; larger ones are the host's

	formatUint8, formatUint16   = 0x01, 0x02
	formatSint8, formatSint16   = 0x08, 0x09
	formatHalf                  = 0x10
	memProp                     = 8 // offset of the location in CUmemAllocationProp: type, id
	arrayWidth, arrayHeight     = 0, 8
	arrayFormat, arrayChannels  = 16, 20 // CUDA_ARRAY_DESCRIPTOR
	array3DDepth, array3DFormat = 16, 24 // CUDA_ARRAY3D_DESCRIPTOR
	array3DChannels             = 28

	// Of CUDA 12.9: CUgraphNodeParams, and CUDA_MEM_ALLOC_NODE_PARAMS of all versions.
	nodeType, nodeParams = 0, 16
	nodeMemAlloc         = 10 // CU_GRAPH_NODE_TYPE_MEM_ALLOC
	nodeProp, nodeBytes  = 8, 104
	nodePointer          = 112 // which the driver fills in
)

// size puts how many bytes a call asks for into the register state, and its GPU
// into device where the arguments name it. The register task must point to the
// process's guardedValue. A call that takes no memory of a GPU ends the program.
func (b *builder) size() {
	b.kind()
	for _, kind := range []cudafile.Kind{
		cudafile.AllocPitch, cudafile.MemCreate, cudafile.Array, cudafile.Array3D, cudafile.Mipmap,
		cudafile.AddMemNode, cudafile.AddNodeOnFifth, cudafile.AddNodeOnSixth,
	} {
		b.add(asm.JEq.Imm(asm.R0, int32(kind), sizeLabel(kind)))
	}
	for _, kind := range cudafile.Contexts {
		b.add(asm.JEq.Imm(asm.R0, int32(kind), sizeLabel(cudafile.Context)))
	}
	b.add(asm.LoadMem(state, regs, ptSI, asm.DWord), asm.Ja.Label("sized"))

	b.label(sizeLabel(cudafile.AllocPitch))
	b.add(
		asm.LoadMem(state, regs, ptDX, asm.DWord), asm.LoadMem(asm.R1, regs, ptCX, asm.DWord),
		asm.Mul.Reg(state, asm.R1),
		asm.Ja.Label("sized"),
	)
	b.label(sizeLabel(cudafile.MemCreate))
	b.memCreateSize()
	b.nodeSizes()
	b.label(sizeLabel(cudafile.Context))
	b.ordinalArgument()
	b.add( // the second and every other context on a GPU shows in the ledger
		asm.LoadMem(asm.R1, task, guardedContexts, asm.Word),
		asm.LoadMem(asm.R3, task, guardedOrdinals, asm.Word),
		asm.JEq.Imm(asm.R3, 1, "any context"),
		asm.LoadMem(asm.R2, frame, device, asm.Word),
		asm.JGE.Imm(asm.R2, maxOrdinals, "any context"),
		asm.RSh.Reg(asm.R1, asm.R2),
		asm.And.Imm(asm.R1, 1),
	)
	b.label("any context")
	b.add(
		asm.JNE.Imm(asm.R1, 0, "exit"),
		asm.LoadMem(state, task, guardedContext, asm.DWord),
		asm.Ja.Label("sized"),
	)
	b.label(sizeLabel(cudafile.Array))
	b.arraySize(cudafile.Array, arrayFormat, arrayChannels, 24)
	b.label(sizeLabel(cudafile.Array3D))
	b.arraySize(cudafile.Array3D, array3DFormat, array3DChannels, 32)
	b.label(sizeLabel(cudafile.Mipmap))
	b.arraySize(cudafile.Mipmap, array3DFormat, array3DChannels, 32)
	b.label("sized")
}

// nodeSizes are those of graphs' nodes that get memory; another one ends the program.
func (b *builder) nodeSizes() {
	b.label(sizeLabel(cudafile.AddNodeOnSixth))
	b.add(asm.LoadMem(state, regs, ptR9, asm.DWord), asm.Ja.Label("any node"))
	b.label(sizeLabel(cudafile.AddNodeOnFifth))
	b.add(asm.LoadMem(state, regs, ptR8, asm.DWord))
	b.label("any node")
	b.readUser(buffer, 4, state, nodeType)
	b.add(
		asm.JNE.Imm(asm.R0, 0, "exit"), // the call fails
		asm.LoadMem(asm.R1, frame, buffer, asm.Word),
		asm.JNE.Imm(asm.R1, nodeMemAlloc, "exit"),
		asm.Add.Imm(state, nodeParams),
		asm.Ja.Label("memory node"),
	)
	b.label(sizeLabel(cudafile.AddMemNode))
	b.add(asm.LoadMem(state, regs, ptR8, asm.DWord))
	b.label("memory node")
	b.readUser(buffer, 8, state, nodeProp)
	b.add(
		asm.JNE.Imm(asm.R0, 0, "exit"),
		asm.LoadMem(asm.R1, frame, buffer, asm.Word),
		asm.JGT.Imm(asm.R1, locationDevice, "exit"),
		asm.LoadMem(asm.R1, frame, buffer+4, asm.Word),
		asm.StoreMem(frame, device, asm.R1, asm.Word),
	)
	b.readUser(buffer, 8, state, nodeBytes)
	b.add(
		asm.JNE.Imm(asm.R0, 0, "exit"),
		asm.LoadMem(state, frame, buffer, asm.DWord),
		asm.Ja.Label("sized"),
	)
}

func sizeLabel(kind cudafile.Kind) string { return fmt.Sprintf("size %d", kind) }

func (b *builder) memCreateSize() {
	b.add(
		asm.LoadMem(state, regs, ptSI, asm.DWord),
		asm.StoreImm(frame, buffer, locationDevice, asm.Word),
		asm.StoreImm(frame, buffer+4, -1, asm.Word),
		asm.LoadMem(asm.R4, regs, ptDX, asm.DWord),
	)
	b.readUser(buffer, 8, asm.R4, memProp)
	b.add(
		asm.LoadMem(asm.R1, frame, buffer, asm.Word),
		asm.JGT.Imm(asm.R1, locationDevice, "exit"),
		asm.LoadMem(asm.R1, frame, buffer+4, asm.Word),
		asm.StoreMem(frame, device, asm.R1, asm.Word),
		asm.Ja.Label("sized"),
	)
}

// arraySize multiplies what a descriptor says. Formats that are not known (the
// compressed ones) count as four bytes, the most that any takes.
func (b *builder) arraySize(kind cudafile.Kind, format, channels int16, bytes int32) {
	name := func(what string) string { return fmt.Sprintf("%s of %d", what, kind) }
	b.add(asm.LoadMem(asm.R4, regs, ptSI, asm.DWord))
	b.readUser(buffer, bytes, asm.R4, 0)
	b.add(
		asm.JNE.Imm(asm.R0, 0, "exit"), // the call fails
		asm.LoadMem(state, frame, buffer+arrayWidth, asm.DWord),
	)
	b.times(buffer+arrayHeight, asm.DWord, name("height"))
	if bytes == 32 {
		b.times(buffer+array3DDepth, asm.DWord, name("depth"))
	}
	b.times(buffer+channels, asm.Word, name("channels"))
	b.add(
		asm.LoadMem(asm.R1, frame, buffer+format, asm.Word),
		asm.JEq.Imm(asm.R1, formatUint8, name("format")),
		asm.JEq.Imm(asm.R1, formatSint8, name("format")),
		asm.LSh.Imm(state, 1),
		asm.JEq.Imm(asm.R1, formatUint16, name("format")),
		asm.JEq.Imm(asm.R1, formatSint16, name("format")),
		asm.JEq.Imm(asm.R1, formatHalf, name("format")),
		asm.LSh.Imm(state, 1),
	)
	b.label(name("format"))
	if kind == cudafile.Mipmap { // each level is a quarter of the one above it, of one dimension a half
		b.add(
			asm.Mov.Imm(asm.R1, 0),
			asm.LoadMem(asm.R2, regs, ptDX, asm.DWord), // levels
			asm.JLE.Imm(asm.R2, 1, name("line")),
			asm.Mov.Reg(asm.R1, state),
			asm.LoadMem(asm.R2, frame, buffer+arrayHeight, asm.DWord),
			asm.JEq.Imm(asm.R2, 0, name("line")),
			asm.Div.Imm(asm.R1, 3),
		)
		b.label(name("line"))
		b.add(asm.Add.Reg(state, asm.R1))
	}
	b.add(asm.Ja.Label("sized"))
}

// times multiplies state by a value on the stack, unless that is 0.
func (b *builder) times(at int16, size asm.Size, name string) {
	b.add(
		asm.LoadMem(asm.R1, frame, at, size),
		asm.JEq.Imm(asm.R1, 0, name),
		asm.Mul.Reg(state, asm.R1),
	)
	b.label(name)
}
