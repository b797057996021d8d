package cudaprobe

import (
	"bytes"
	"encoding/binary"
	"strings"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// What follows an event that names the control groups of its process. Only names
// of nameLeast bytes or more are written: a container's holds its id, 64 digits.
// Of many the outermost stay, for below its own group a container may make any
// number of others: one less than there are slots, because a name must be read
// somewhere to see how long it is.
const (
	nameSize  = 160 // with the NUL: the longest that engines make has 145 bytes
	nameSlots = 4   // a power of two
	nameLeast = 64
	groupsMax = 24 // levels: a path that is longer names none, for its begin is not seen

	tallyAt     = eventSize // how many names there were
	namesAt     = tallyAt + 8
	groupedSize = namesAt + nameSlots*nameSize
)

// Places on the stack that the other programs use for calls.
const (
	groupAt    = callAt
	groupSetAt = callAt + 8
)

// Registers of the walk through the groups.
const record, level = asm.R6, asm.R8

// groupOffsets are the places of what leads from a task to the names of its
// control groups. Up goes the state of a controller, whose names in the kernel
// have stayed the same for longer than those of kernfs.
type groupOffsets struct {
	set     int32 // task_struct.cgroups
	unified int32 // css_set.dfl_cgrp: the group of cgroup v2
	self    int32 // cgroup.self: its state without a controller
	devices int32 // css_set.subsys[devices_cgrp_id]; −1: the kernel has no such controller
	group   int32 // cgroup_subsys_state.cgroup
	parent  int32 // cgroup_subsys_state.parent
	node    int32 // cgroup.kn
	name    int32 // kernfs_node.name
}

// readGroupOffsets returns nil where the kernel has no control groups, or not as
// they are known here: then events name none.
func readGroupOffsets(spec *btf.Spec) *groupOffsets {
	o := &groupOffsets{devices: -1}
	var subsys int32
	for _, want := range []struct {
		in, member string
		to         *int32
	}{
		{"task_struct", "cgroups", &o.set},
		{"css_set", "dfl_cgrp", &o.unified},
		{"css_set", "subsys", &subsys},
		{"cgroup", "self", &o.self},
		{"cgroup", "kn", &o.node},
		{"cgroup_subsys_state", "cgroup", &o.group},
		{"cgroup_subsys_state", "parent", &o.parent},
		{"kernfs_node", "name", &o.name},
	} {
		var in *btf.Struct
		if err := spec.TypeByName(want.in, &in); err != nil {
			return nil
		}
		offset, ok := memberOffset(in.Members, want.member)
		if !ok {
			return nil
		}
		*want.to = int32(offset)
	}
	var controllers *btf.Enum
	if err := spec.TypeByName("cgroup_subsys_id", &controllers); err == nil {
		for _, v := range controllers.Values {
			if v.Name == "devices_cgrp_id" {
				o.devices = subsys + 8*int32(v.Value)
			}
		}
	}
	return o
}

// chase goes from what the register task points to on to what that points to.
func (b *builder) chase(offset int32) {
	b.readKernel(scratch, 8, offset)
	b.add(asm.LoadMem(task, frame, scratch, asm.DWord))
}

// sendGroups is send, with the names of the process's control groups: those of
// the controller for devices, in which every engine puts its containers on
// cgroup v1, else those of v2. They are written where the event waits to be read,
// for the stack has no room, and a thread on the same CPU may come in between.
func (b *builder) sendGroups(kind Kind) {
	o := b.task.groups
	b.add(
		asm.StoreImm(frame, evKind, int64(kind), asm.Word),
		asm.LoadMapPtr(asm.R1, b.maps.ring.FD()), asm.Mov.Imm(asm.R2, groupedSize), asm.Mov.Imm(asm.R3, 0),
		asm.FnRingbufReserve.Call(),
		asm.JEq.Imm(asm.R0, 0, "lost"),
		asm.Mov.Reg(record, asm.R0),
	)
	for at := int16(0); at < eventSize; at += 8 {
		b.add(asm.LoadMem(asm.R1, frame, eventAt+at, asm.DWord), asm.StoreMem(record, at, asm.R1, asm.DWord))
	}
	b.add(asm.StoreImm(record, tallyAt, 0, asm.Word), asm.FnGetCurrentTask.Call(), asm.Mov.Reg(task, asm.R0))
	b.chase(o.set)
	b.add(asm.StoreMem(frame, groupSetAt, task, asm.DWord))
	if o.devices >= 0 {
		b.chase(o.devices)
		b.names("devices")
		b.add(
			asm.LoadMem(asm.R1, record, tallyAt, asm.Word), asm.JNE.Imm(asm.R1, 0, "told"),
			asm.LoadMem(task, frame, groupSetAt, asm.DWord),
		)
	}
	b.chase(o.unified)
	b.add(asm.Add.Imm(task, o.self))
	b.names("unified")
	b.label("told")
	b.add(
		asm.Mov.Reg(asm.R1, record), asm.Mov.Imm(asm.R2, 0),
		asm.FnRingbufSubmit.Call(),
		asm.Ja.Label("exit"),
	)
}

// names writes the names of the group whose state task points to, and of those
// above it, and counts them behind the event. (Not in a register: the verifier
// would look at each sum of each level by itself.) hierarchy makes the labels its
// own.
func (b *builder) names(hierarchy string) {
	o := b.task.groups
	b.add(asm.Mov.Imm(level, 0))
	b.label("group of " + hierarchy)
	b.add(asm.StoreMem(frame, groupAt, task, asm.DWord))
	b.chase(o.group)
	b.chase(o.node)
	b.chase(o.name)
	b.add(
		asm.LoadMem(asm.R1, record, tallyAt, asm.Word), asm.And.Imm(asm.R1, nameSlots-1), asm.Mul.Imm(asm.R1, nameSize),
		asm.Add.Reg(asm.R1, record), asm.Add.Imm(asm.R1, namesAt),
		asm.Mov.Imm(asm.R2, nameSize), asm.Mov.Reg(asm.R3, task),
		asm.FnProbeReadKernelStr.Call(),
		asm.JSLT.Imm(asm.R0, nameLeast+1, "above in "+hierarchy), // too short, or not readable
		asm.LoadMem(asm.R1, record, tallyAt, asm.Word), asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(record, tallyAt, asm.R1, asm.Word),
		asm.LoadMem(task, frame, groupAt, asm.DWord).WithSymbol("above in "+hierarchy),
	)
	b.chase(o.parent)
	b.add(
		asm.JEq.Imm(task, 0, "root of "+hierarchy),
		asm.Add.Imm(level, 1),
		asm.JLT.Imm(level, groupsMax, "group of "+hierarchy),
		asm.StoreImm(record, tallyAt, 0, asm.Word),
	)
	b.label("root of " + hierarchy)
}

// groups reads the names that a program has written behind an event, as a path.
// A name that had no room makes it empty: what is cut off may be the id.
func groups(raw []byte) string {
	if len(raw) < groupedSize {
		return ""
	}
	found := binary.NativeEndian.Uint32(raw[tallyAt:])
	var path strings.Builder
	for n := found; n > 0 && found-n < nameSlots-1; n-- { // the outermost was written last
		name, _, _ := bytes.Cut(raw[namesAt+(n-1)%nameSlots*nameSize:][:nameSize], []byte{0})
		if len(name) >= nameSize-1 {
			return ""
		}
		path.WriteByte('/')
		path.Write(name)
	}
	return path.String()
}
