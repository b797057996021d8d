package zoo

import "testing"

// Where there can be no containerd, there is no engine either: who opened it closes what it got.
func TestNoEngineWithoutContainerd(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if e, err := openPods(t.Context()); err == nil || e != nil {
		t.Errorf("%v, %v", e, err)
	}
}
