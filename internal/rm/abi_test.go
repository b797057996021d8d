package rm

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

// The sizes are those that a C compiler gives the structures of each branch's headers
// (NVIDIA/open-gpu-kernel-modules at the tags 535.288.01, 550.163.01, 570.211.01, 580.142
// and 595.45.04): they are the same in all.
func TestSizes(t *testing.T) {
	for name, c := range map[string]struct {
		of   any
		want int
	}{
		"nvos.h NVOS00_PARAMETERS":                                          {nvos00{}, 16},
		"nvos.h NVOS21_PARAMETERS":                                          {nvos21{}, 32},
		"nvos.h NV_MEMORY_ALLOCATION_PARAMS, from 550 on":                   {memoryParams{}, memorySize("550")},
		"cl90cd.h NV_EVENT_BUFFER_ALLOC_PARAMETERS":                         {bufferParams{}, 72},
		"ctrl2080gr.h NV2080_CTRL_GR_FECS_BIND_EVTBUF_FOR_UID_V2_PARAMS":    {traceParams{}, 24},
		"ctrl90cd.h NV_EVENT_BUFFER_CTRL_CMD_ENABLE_EVENTS_PARAMS":          {enableParams{}, 8},
		"nv-unix-nvos-params-wrappers.h nv_ioctl_nvos33_parameters_with_fd": {mapParams{}, 56},
		"ctrl0000gpu.h NV0000_CTRL_GPU_GET_UUID_INFO_PARAMS":                {uuidInfo{}, 272},
		"nvos.h NVOS54_PARAMETERS":                                          {nvos54{}, 32},
		"ctrl0000client.h NV0000_CTRL_CLIENT_GET_HANDLE_INFO_PARAMS":        {handleInfo{}, 16},
		"ctrl0000gpu.h NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS":               {gpuIDInfo{}, 32},
		"ctrl2080gpu.h NV2080_CTRL_GPU_GET_GID_INFO_PARAMS":                 {gid{}, 268},
		"ctrl2080gpu.h NV2080_CTRL_GPU_GET_ID_PARAMS":                       {gpuID{}, 4},
		"ctrl2080fifo.h NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS":           {disable{}, 536},
		"ctrl208ffifo.h NV208F_CTRL_FIFO_GET_CHANNEL_STATE_PARAMS":          {channelState{}, 16},
		"ctrla06c.h NVA06C_CTRL_TIMESLICE_PARAMS":                           {timeslice{}, 8},
		"cl0080.h NV0080_ALLOC_PARAMETERS":                                  {deviceParams{}, 56},
		"cl2080.h NV2080_ALLOC_PARAMETERS":                                  {subdeviceParams{}, 4},
	} {
		if got := binary.Size(c.of); got != c.want {
			t.Errorf("%s has %d bytes, want %d", name, got, c.want)
		}
	}
	if got := request(escControl, 32); got != 0xc020462a {
		t.Errorf("the request of a control is %#x", got)
	}
}

func TestSupportedDrivers(t *testing.T) {
	for version, ok := range map[string]bool{
		"535.288.01": true, "550.163.01": true, "570.211.01": true, "580.159.04": true, "595.45.04": true,
		"610.10": false, "525.147.05": false, "5350.1": false, "": false, "610.20": true,
	} {
		err := supported(version, []string{"610.20"})
		if (err == nil) != ok || (err != nil && !errors.Is(err, ErrUnsupported)) {
			t.Errorf("driver %q: %v", version, err)
		}
	}
}

func TestDriverVersion(t *testing.T) {
	for text, want := range map[string]string{
		"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (dvs-builder@U22)  \nGCC version: gcc 12.3": "580.159.04",
		"NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun  6 22:20:39 UTC 2023\n":                                      "535.54.03",
		"NVRM version: none\nGCC version:  gcc version 12.3.0":                                                                           "",
	} {
		got, err := parseVersion(text)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

func TestStat(t *testing.T) {
	line := func(name, state, flags string) string {
		return "42 (" + name + ") " + state + " 1 42 42 0 -1 " + flags + " 1 0 0 0 1 2 0 0 20 0 1 0 777 1000 10 18446744073709551615"
	}
	for text, want := range map[string]Stat{
		line("a", "R", "4194560"):         {Start: 777},
		line("a) R 1 (b", "S", "4194560"): {Start: 777},
		line("a", "R", "4194564"):         {Start: 777, Exiting: true},
		line("a", "Z", "4194560"):         {Start: 777, Exiting: true},
	} {
		if got, err := parseStat(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "42 (a) R", line("a", "R", "x")} {
		if _, err := parseStat(text); err == nil {
			t.Errorf("%q has a start time", text)
		}
	}
}

func TestNVIDIAMajors(t *testing.T) {
	text := "Character devices:\n  1 mem\n195 nvidia\n195 nvidiactl\n511 nvidia-uvm\n\nBlock devices:\n  9 nvidia\n"
	if got := nvidiaMajors([]byte(text)); len(got) != 1 || got[0] != 195 {
		t.Errorf("majors %v", got)
	}
	if got := nvidiaMajors([]byte("Character devices:\n195 nvidia-frontend\n")); len(got) != 1 {
		t.Errorf("majors of an older driver %v", got)
	}
}

func TestStatusNames(t *testing.T) {
	if got := Status(0x56).Error(); !strings.Contains(got, "NV_ERR_NOT_SUPPORTED") {
		t.Error(got)
	}
	if !errors.Is(&controlError{1, statusNotSupported}, ErrUnsupported) {
		t.Error("NV_ERR_NOT_SUPPORTED is not ErrUnsupported")
	}
	if got := Status(0xabc).Error(); !strings.Contains(got, "0xabc") {
		t.Error(got)
	}
	for _, s := range []Status{statusNotSupported} {
		if statusNames[s] == "" {
			t.Errorf("status %#x has no name", uint32(s))
		}
	}
}

func TestSpansWrap(t *testing.T) {
	for _, c := range []struct {
		low, high uint32
		want      int
	}{{5, 9, 4}, {clientMax - 2, 3, 5}, {7, 7, clientMax}, {0, 0, clientMax}, {3, 0, clientMax - 3}} {
		todo := spans(c.low, c.high)
		if got := size(todo); got != c.want {
			t.Errorf("from %d to %d are %d handles, want %d", c.low, c.high, got, c.want)
		}
		seen := 0
		for last := c.high; len(todo) > 0; seen++ {
			part := cut(&todo, 1)
			if want := (last + clientMax - 1) % clientMax; part.low != want {
				t.Fatalf("from %d to %d: %d follows %d", c.low, c.high, part.low, last)
			}
			last = part.low
		}
		if seen != c.want {
			t.Errorf("from %d to %d: %d handles were cut off, want %d", c.low, c.high, seen, c.want)
		}
	}
}

func TestMinorOfGPU(t *testing.T) {
	text := "Model: \t\t NVIDIA H200\nIRQ:   \t\t 86\nGPU UUID: \t GPU-775c3238-4bcb\nBus Type: \t PCIe\nDevice Minor: \t 3\n"
	if minor, ok := minorOf(text, "GPU-775c3238-4bcb"); minor != "3" || !ok {
		t.Errorf("minor %q, %v", minor, ok)
	}
	if _, ok := minorOf(text, "GPU-775c3238"); ok {
		t.Error("another GPU's UUID is taken for it")
	}
}
