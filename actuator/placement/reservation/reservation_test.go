package reservation_test

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/actuator/placement/reservation"
)

var now = time.Date(2027, 1, 15, 8, 0, 0, 0, time.UTC)

func open(t *testing.T, path string, at time.Time) *reservation.Store {
	t.Helper()
	l, damaged, err := reservation.Open(path, at)
	if err != nil || damaged != nil {
		t.Fatal(damaged, err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func entry(id string, made time.Time) reservation.Entry {
	return reservation.Entry{ID: id, Node: "a", GPU: "GPU-a", Memory: 4 << 30, Deadline: 9, Estimate: 3, Image: "m", State: reservation.Assumed, Made: made, Expires: made.Add(2 * time.Minute)}
}

func ids(l *reservation.Store) (all []string) {
	for _, e := range l.List() {
		all = append(all, e.ID)
	}
	return all
}

// What Apply accepted is there after a crash: the file is copied while the store is open.
func TestWhatIsAppliedIsOnDisk(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "placements.db")
	l := open(t, path, now)
	changed := entry("b", now)
	changed.State, changed.Container, changed.Expires = reservation.Confirmed, "c1", time.Time{}
	for _, c := range []reservation.Change{
		{},
		{Keep: []reservation.Entry{entry("c", now.Add(time.Second)), entry("b", now), entry("a", now)}},
		{Keep: []reservation.Entry{changed}, Forget: []string{"a", "never there"}},
	} {
		if err := l.Apply(c); err != nil {
			t.Fatal(err)
		}
	}
	crashed := filepath.Join(dir, "crashed.db")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(crashed, content, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, l := range map[string]*reservation.Store{"open": l, "after a crash": open(t, crashed, now)} {
		if got := ids(l); !slices.Equal(got, []string{"b", "c"}) {
			t.Errorf("%s: %v, want b and c, the oldest first", name, got)
		}
		if got, ok := l.Get("b"); !ok || got.State != reservation.Confirmed || got.Container != "c1" || !got.Expires.IsZero() || got.Memory != 4<<30 || !got.Made.Equal(now) {
			t.Errorf("%s: b = %+v, %v", name, got, ok)
		}
		if _, ok := l.Get("a"); ok {
			t.Errorf("%s: a was forgotten, and is there", name)
		}
	}
}

// One pod has a name at a time, whatever its UID; a container in no pod has none.
func TestPodsByName(t *testing.T) {
	l := open(t, filepath.Join(t.TempDir(), "placements.db"), now)
	inPod := entry("a", now)
	inPod.Pod, inPod.Former = reservation.Pod{Namespace: "team", Name: "one", UID: "1"}, "c0"
	if err := l.Apply(reservation.Change{Keep: []reservation.Entry{inPod, entry("b", now)}}); err != nil {
		t.Fatal(err)
	}
	for pod, want := range map[reservation.Pod]bool{
		{Namespace: "team", Name: "one", UID: "1"}: true,
		{Namespace: "team", Name: "one", UID: "2"}: true,
		{Namespace: "else", Name: "one", UID: "1"}: false,
		{Namespace: "team", Name: "two", UID: "1"}: false,
		{}: false,
	} {
		if got := l.HasPod(pod); got != want {
			t.Errorf("%s, UID %s: %v", pod, pod.UID, got)
		}
	}
}

// A change that cannot be written is carried out in no part.
func TestAllOrNothing(t *testing.T) {
	l := open(t, filepath.Join(t.TempDir(), "placements.db"), now)
	if err := l.Apply(reservation.Change{Keep: []reservation.Entry{entry("a", now)}}); err != nil {
		t.Fatal(err)
	}
	if err := l.Apply(reservation.Change{Keep: []reservation.Entry{entry("b", now), entry("", now)}, Forget: []string{"a"}}); err == nil {
		t.Fatal("an entry without an id was taken")
	}
	if got := ids(l); !slices.Equal(got, []string{"a"}) {
		t.Errorf("%v, want what was there before", got)
	}
}

// A reservation ends no later than if it had been made now, though the wall clock was set back.
func TestClockSetBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "placements.db")
	l := open(t, path, now)
	if err := l.Apply(reservation.Change{Keep: []reservation.Entry{entry("a", now)}}); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		at            time.Time
		made, expires time.Time
	}{
		{now.Add(time.Minute), now, now.Add(2 * time.Minute)},
		{now.Add(time.Hour), now, now.Add(2 * time.Minute)},
		{now.Add(-time.Hour), now.Add(-time.Hour), now.Add(-time.Hour + 2*time.Minute)},
	} {
		l := open(t, path, tc.at)
		if got, _ := l.Get("a"); !got.Made.Equal(tc.made) || !got.Expires.Equal(tc.expires) {
			t.Errorf("at %v: made %v, expires %v; want %v, %v", tc.at, got.Made, got.Expires, tc.made, tc.expires)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDamagedFileIsPutAside(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "placements.db")
	if err := os.WriteFile(path, []byte("no database"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, damaged, err := reservation.Open(path, now)
	if err != nil || damaged == nil {
		t.Fatal(damaged, err)
	}
	defer l.Close()
	if err := l.Apply(reservation.Change{Keep: []reservation.Entry{entry("a", now)}}); err != nil {
		t.Error(err)
	}
	if aside, err := filepath.Glob(path + ".damaged-*"); err != nil || len(aside) != 1 {
		t.Errorf("put aside: %v, %v", aside, err)
	}
}

// What is promised is what the container may hold and does not hold yet; its work counts
// until a task of it was seen.
func TestClaim(t *testing.T) {
	work := placement.WorkOf(placement.Request{Deadline: 9, Estimate: 3})
	for _, tc := range []struct {
		state reservation.State
		held  uint64
		want  placement.Claim
	}{
		{reservation.Assumed, 0, placement.Claim{Node: "a", GPU: "GPU-a", Memory: 4 << 30, Work: work}},
		{reservation.Created, 1 << 30, placement.Claim{Node: "a", GPU: "GPU-a", Memory: 3 << 30, Work: work}},
		{reservation.Confirmed, 1 << 30, placement.Claim{Node: "a", GPU: "GPU-a", Memory: 3 << 30}},
		{reservation.Confirmed, 4 << 30, placement.Claim{Node: "a", GPU: "GPU-a"}},
		{reservation.Confirmed, 5 << 30, placement.Claim{Node: "a", GPU: "GPU-a"}},
	} {
		e := entry("a", now)
		e.State = tc.state
		if got := e.Claim(tc.held); !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s, %d held: %+v, want %+v", tc.state, tc.held, got, tc.want)
		}
	}
}
