package admission_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/admission"
)

func TestQuestionByParameters(t *testing.T) {
	q := admission.Question{Node: "n", GPU: "GPU-1", Image: "a:1", Server: true, Deadline: 20 * time.Millisecond, Estimate: time.Second, Share: 0.3}
	for _, q := range []admission.Question{q, {}} {
		if got, err := admission.ParseQuestion(q.Values()); err != nil || got != q {
			t.Errorf("%+v, %v; want %+v", got, err, q)
		}
	}
	for query, says := range map[string]string{
		"deadline=0": "deadline: ", "estimate=much": "estimate: ", "share=0.3": "30%", "release=often": "process or busy", "dedline=9s": "write one of",
	} {
		v, _ := url.ParseQuery(query)
		if _, err := admission.ParseQuestion(v); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", query, err)
		}
	}
}
