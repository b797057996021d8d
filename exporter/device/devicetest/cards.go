package devicetest

import (
	"slices"
	"testing"
	"time"

	"github.com/laxity/laxity/exporter/device"
)

// openCards opens the cards of a rig's device.
func openCards(t *testing.T, rig Rig) device.Cards {
	t.Helper()
	with, ok := rig.Device.(device.WithCards)
	if !ok {
		t.Fatal("this adapter knows nothing of the cards' condition")
	}
	cards, err := with.Cards()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cards.Close() })
	return cards
}

func readCards(t *testing.T, c device.Cards) device.CardReading {
	t.Helper()
	r, err := c.Read(t.Context())
	if err != nil {
		t.Fatalf("Read of the cards: %v", err)
	}
	return r
}

// cardsOf is the UUIDs of the cards, whole or in MIG mode, of a reading of the device.
func cardsOf(r device.Reading) []string {
	var uuids []string
	for _, g := range r.GPUs {
		uuid := g.UUID
		if g.Parent != "" {
			uuid = g.Parent
		}
		if !slices.Contains(uuids, uuid) {
			uuids = append(uuids, uuid)
		}
	}
	return uuids
}

func uuidsOf(r device.CardReading) []string {
	var uuids []string
	for _, c := range r.Cards {
		uuids = append(uuids, c.UUID)
	}
	return uuids
}

func testCards(t *testing.T, rig Rig) {
	cards := openCards(t, rig)
	devices := read(t, rig.Device)
	before := readCards(t, cards)
	if got, want := uuidsOf(before), cardsOf(devices); !slices.Equal(got, want) {
		t.Fatalf("cards %v, want those of the device, %v", got, want)
	}
	for _, c := range before.Cards {
		if c.Power != nil && (*c.Power <= 0 || *c.Power > 5000) {
			t.Errorf("%s draws %v W", c.UUID, *c.Power)
		}
		for place, v := range c.Temperature {
			if v < 0 || v > 150 {
				t.Errorf("%s: %v °C of %s", c.UUID, v, place)
			}
		}
		for part, v := range c.Clock {
			if v < 1e6 || v > 1e11 {
				t.Errorf("%s: %v Hz of %s", c.UUID, v, part)
			}
		}
		for reason := range c.Throttled {
			if !slices.Contains(device.ThrottleReasons, reason) {
				t.Errorf("%s: unknown reason %q", c.UUID, reason)
			}
		}
		for pid, share := range c.SM {
			if pid <= 0 || share < 0 || share > 1 {
				t.Errorf("%s: process %d used %v of it", c.UUID, pid, share)
			}
		}
		for pid, share := range c.Present {
			if pid <= 0 || share < 0 || share > 1 {
				t.Errorf("%s: the context of process %d was on it for %v of the time", c.UUID, pid, share)
			}
		}
		for _, m := range []map[string]uint64{c.ECC, c.NVLink} {
			if m != nil && len(m) != 2 {
				t.Errorf("%s: %v, want both kinds", c.UUID, m)
			}
		}
		if c.MIG && (c.SM != nil || c.Present != nil) {
			t.Errorf("%s is in MIG mode and reports processes: %v, %v", c.UUID, c.SM, c.Present)
		}
	}
	// The counters of energy grow while time passes.
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		after, grown := readCards(t, cards), true
		for i, c := range after.Cards {
			if was := before.Cards[i].Energy; was != nil {
				if c.Energy == nil || *c.Energy < *was {
					t.Fatalf("%s: energy %v after %v", c.UUID, c.Energy, *was)
				}
				grown = grown && *c.Energy > *was
			}
		}
		if grown {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("no energy was used in %v", patience)
		}
	}
}

// A card that does not answer is absent, and costs the others nothing.
func testLostCard(t *testing.T, rig Rig) {
	cards := openCards(t, rig)
	all := uuidsOf(readCards(t, cards))
	if rig.Lose == nil || len(all) < 2 {
		t.Skip("needs two cards, of which one can be lost")
	}
	undo := rig.Lose(t, all[0])
	if got := uuidsOf(readCards(t, cards)); !slices.Equal(got, all[1:]) {
		t.Errorf("with %s lost: %v, want %v", all[0], got, all[1:])
	}
	undo()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if got := uuidsOf(readCards(t, cards)); slices.Equal(got, all) {
			return
		} else if time.Now().After(deadline) {
			t.Fatalf("after its return: %v, want %v", got, all)
		}
	}
}

func testCardReload(t *testing.T, rig Rig) {
	if rig.Unload == nil {
		t.Skip("the driver of this device cannot be unloaded")
	}
	cards := openCards(t, rig)
	all := uuidsOf(readCards(t, cards))
	undo := rig.Unload(t)
	if r, err := cards.Read(t.Context()); err == nil {
		t.Errorf("read %v without a driver", uuidsOf(r))
	}
	undo()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		r, err := cards.Read(t.Context())
		if err == nil && slices.Equal(uuidsOf(r), all) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after the driver came back: %v, %v", uuidsOf(r), err)
		}
	}
}

func testCardClose(t *testing.T, rig Rig) {
	cards := openCards(t, rig)
	for range 2 {
		if err := cards.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if _, err := cards.Read(t.Context()); err == nil {
		t.Error("read after Close")
	}
	read(t, rig.Device) // which has a driver of its own
}
