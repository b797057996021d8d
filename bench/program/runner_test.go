package program

import "testing"

func TestALineThatIsNotCompleteYetIsLeftOut(t *testing.T) {
	spans, err := spansIn("{}\n{\"began\": 1.5, \"ended\": 2.5}\n{\"began\": 2.5, \"en")
	if err != nil || len(spans) != 1 || spans[0] != (Span{1.5, 2.5}) {
		t.Errorf("%v, %v", spans, err)
	}
	if _, err := spansIn("Traceback"); err == nil {
		t.Error("no error for what is not JSON")
	}
}
