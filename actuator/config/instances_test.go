package config_test

import (
	"strings"
	"testing"

	"github.com/laxity/laxity/actuator/config"
)

func TestInstances(t *testing.T) {
	some := config.Instances{Proven: []string{"MIG-a"}, Failed: map[string]string{"MIG-b": "slices are inert"}}
	for _, tc := range []struct {
		is         config.Instances
		uuid, want string // "": proven
	}{
		{some, "MIG-a", ""},
		{some, "MIG-b", "slices are inert"},
		{some, "MIG-made-later", "no self-test"},
		{config.Instances{}, "MIG-a", "no self-test"},
		{config.Instances{All: true}, "MIG-a", ""},
	} {
		if got := tc.is.Unproven(tc.uuid); (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%+v of %s: %q, want %q", tc.is, tc.uuid, got, tc.want)
		}
	}
}
