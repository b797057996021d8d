package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/exporter/device/sim"
	"github.com/laxity/laxity/exporter/device/sim/simtest"
	"github.com/laxity/laxity/internal/daemon"
)

const patience = 30 * time.Second

func TestUsage(t *testing.T) {
	tests := []struct {
		name string
		args []string
		code int
		want string
	}{
		{"help", []string{"--help"}, 0, "--state-dir"},
		{"version", []string{"--version"}, 0, "laxity-exporter"},
		{"unknown flag", []string{"--polling=1s"}, exitUsage, "--help"},
		{"unknown argument", []string{"now"}, exitUsage, "--help"},
		{"not a duration", []string{"--poll.fast=quick"}, exitUsage, "quick"},
		{"slow is faster than fast", []string{"--poll.fast=1s", "--poll.slow=10ms"}, exitUsage, "--poll.slow"},
		{"no time at all", []string{"--device.timeout=0s"}, exitUsage, "longer than 0"},
		{"nicer than possible", []string{"--nice=-21"}, exitUsage, "--nice=-21"},
		{"no history", []string{"--history.tasks=0"}, exitUsage, "--history.tasks"},
		{"no such device", []string{"--device=tpu"}, exitFailure, "sim:"},
		{"no such web configuration", []string{"--device=sim:x", "--web.config.file=/nonexistent"}, exitFailure, "--web.config.file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			if code := realMain(t.Context(), tt.args, &out, &out); code != tt.code || !strings.Contains(out.String(), tt.want) {
				t.Errorf("exit code %d, want %d; %q, want %q in it", code, tt.code, out.String(), tt.want)
			}
		})
	}
}

func TestServesAndStops(t *testing.T) {
	gpu := simtest.Start(t, sim.Options{})
	free, err := daemon.FreeAddresses(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	address := free[0]
	defer func(before time.Duration) { shutdownLimit = before }(shutdownLimit)
	shutdownLimit = 2 * patience // takes a stream that is not ended
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	code := make(chan int, 1)
	go func() {
		code <- realMain(ctx, []string{"--device=sim:" + gpu.Socket, "--state-dir=" + t.TempDir(), "--nice=0",
			"--docker.host=unix:///nonexistent/docker.sock", "--web.listen-address=" + address}, &out, &out)
	}()
	var text string
	for end := time.Now().Add(patience); !strings.Contains(text, "laxity_exporter_device_up 1"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no metrics within %v: %s", patience, text)
		}
		if r, err := http.Get("http://" + address + "/metrics"); err == nil {
			b, _ := io.ReadAll(r.Body)
			_ = r.Body.Close()
			text = string(b)
		}
	}
	if !strings.Contains(text, "laxity_exporter_engine_up 0") || !strings.Contains(text, "process_resident_memory_bytes") {
		t.Error("metrics of the engine or of the process are missing")
	}
	stream, err := http.Get("http://" + address + "/api/v1/tasks?watch=1") // as each actuator has one
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	if _, err := stream.Body.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	cancel()
	select {
	case c := <-code:
		if c != 0 {
			t.Errorf("exit code %d: %s", c, &out)
		}
	case <-time.After(patience):
		t.Fatal("it did not stop: was the stream not ended?")
	}
}
