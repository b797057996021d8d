package task

import (
	"fmt"
	"regexp"
)

var gangName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,63}$`)

// GangID identifies the gang of a container on this node; "" where it is in none. A gang is the
// containers with the same laxity.gang; on Kubernetes those of one namespace, so that nobody joins
// the job of another tenant.
func (c Container) GangID() string {
	if c.Spec.Gang == "" {
		return ""
	}
	namespace, _ := PodOf(c.Name)
	return namespace + "/" + c.Spec.Gang
}

// GangConflict says where b asks for something else than a, a member of the same gang; "" where
// they agree. A gang has one place in the order, so what decides the place must be the same. Limits
// of GPU memory may differ.
func GangConflict(a, b Container) string {
	differ := func(label string, of, other any) string {
		return fmt.Sprintf("%s counts as %v on %s, and as %v on %s of the same gang: write the same on each; until then the gang is left as it is",
			label, of, a.Name, other, b.Name)
	}
	switch s, o := a.Spec, b.Spec; {
	case s.Deadline != o.Deadline:
		return differ(LabelDeadline, s.Deadline.Duration(), o.Deadline.Duration())
	case s.Class != o.Class:
		return differ(LabelClass, s.Class, o.Class)
	case s.Release != o.Release:
		return differ(LabelRelease, s.Release, o.Release)
	case s.Share != o.Share:
		return differ(LabelShare, fmt.Sprintf("%.4g%%", 100*s.Share), fmt.Sprintf("%.4g%%", 100*o.Share))
	case s.NeverPause != o.NeverPause:
		says := map[bool]string{true: "never", false: "allow"}
		return differ(LabelPause, says[s.NeverPause], says[o.NeverPause])
	}
	return ""
}

// GangConflicts says of each gang whose members disagree why, by GangID. It compares with the first
// member in the list.
func GangConflicts(list []Container) map[string]string {
	first, out := map[string]Container{}, map[string]string{}
	for _, c := range list {
		id := c.GangID()
		if id == "" {
			continue
		}
		if _, known := first[id]; !known {
			first[id] = c
		} else if why := GangConflict(first[id], c); why != "" && out[id] == "" {
			out[id] = why
		}
	}
	return out
}
