package prometheus

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/actuator/placement/placer"
	"github.com/laxity/laxity/exporter/task"
)

var _ placer.Source = (*Source)(nil)

// tenantsQuery asks of containers, by id, whether they are known, what they hold
// on each GPU and how many tasks they have. It is asked together with Query, as one
// query, so that the answers are of one moment.
const tenantsQuery = `label_replace(max by (node, container, id) (gpu_container_info{id=~%[1]q}), "fact", "known", "", "")
or label_replace(node_gpu_container:memory_used:bytes * on (node, container) group_left (id) max by (node, container, id) (gpu_container_info{id=~%[1]q}), "fact", "memory", "", "")
or label_replace(sum by (node, container) (gpu_tasks) * on (node, container) group_left (id) max by (node, container, id) (gpu_container_info{id=~%[1]q}), "fact", "tasks", "", "")`

// Facts implements placer.Source.
func (s *Source) Facts(ctx context.Context, ids []string) ([]placement.Node, map[string]placer.Tenant, error) {
	expr := Query
	if len(ids) > 0 {
		quoted := make([]string, len(ids))
		for i, id := range ids {
			quoted[i] = regexp.QuoteMeta(id)
		}
		expr += "\nor " + fmt.Sprintf(tenantsQuery, strings.Join(quoted, "|"))
	}
	v, err := s.querier.Query(ctx, expr, time.Time{})
	if err != nil {
		return nil, nil, fmt.Errorf("placement: %w", err)
	}
	nodes, err := known(v)
	return nodes, tenants(v), err
}

// tenants reads the series that have the label fact.
func tenants(v model.Vector) map[string]placer.Tenant {
	out := map[string]placer.Tenant{}
	for _, s := range v {
		if s.Metric["fact"] == "" {
			continue
		}
		id := string(s.Metric["id"])
		t := out[id]
		switch s.Metric["fact"] {
		case "memory":
			if t.Memory == nil {
				t.Memory = map[string]uint64{}
			}
			t.Memory[string(s.Metric["gpu"])] = bytes(float64(s.Value))
		case "tasks":
			t.Tasks = int(s.Value)
		}
		out[id] = t
	}
	return out
}

// Estimate implements placer.Source: the longest last task of the image's
// containers, on any node.
func (s *Source) Estimate(ctx context.Context, image string) (task.Seconds, error) {
	v, err := s.querier.Query(ctx, `max(image:task_duration:seconds{image=`+strconv.Quote(image)+`})`, time.Time{})
	if err != nil {
		return 0, fmt.Errorf("placement: %w", err)
	}
	if len(v) == 0 {
		return 0, nil
	}
	return max(0, task.Seconds(v[0].Value)), nil
}
