package prometheus

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/common/model"

	"github.com/laxity/laxity/actuator/placement/placer"
)

// tenantsQuery asks of containers, by node and id, whether they are known, what
// they hold on each GPU and how many tasks they have. It is asked together with
// Query, as one query, so that the answers are of one moment.
const tenantsQuery = `label_replace(max by (node, container, id) (gpu_container_info{node=~%[1]s,id=~%[2]s}), "fact", "known", "", "")
or label_replace(max by (node, gpu, container) (gpu_container_memory_used_bytes{node=~%[1]s}) * on (node, container) group_left (id) max by (node, container, id) (gpu_container_info{node=~%[1]s,id=~%[2]s}), "fact", "memory", "", "")
or label_replace(sum by (node, container) (gpu_tasks{node=~%[1]s}) * on (node, container) group_left (id) max by (node, container, id) (gpu_container_info{node=~%[1]s,id=~%[2]s}), "fact", "tasks", "", "")`

// freshQuery asks of nodes whether their facts are fresh, and which of them do not reach their container
// engine: their exporter says nothing of containers that it has not seen before.
const freshQuery = `node:fresh:bool{node=~%[1]s}
or label_replace(min by (node) (laxity_exporter_engine_up{node=~%[1]s}) == 0, "fact", "engine down", "", "")`

// tenantsOn is tenantsQuery for those of the containers, ids by node, that are on
// one of these nodes, nil for all; empty when there is none.
func tenantsOn(names []string, containers map[string][]string) string {
	var nodes, ids []string
	for node, list := range containers {
		if len(list) > 0 && (names == nil || slices.Contains(names, node)) {
			nodes, ids = append(nodes, node), append(ids, list...)
		}
	}
	if len(ids) == 0 {
		return ""
	}
	return fmt.Sprintf(tenantsQuery, anyOf(nodes), anyOf(ids))
}

// Tenants implements placer.Source.
func (s *Source) Tenants(ctx context.Context, containers map[string][]string) (map[string]placer.Tenant, map[string]bool, error) {
	expr := tenantsOn(nil, containers)
	if expr == "" {
		return nil, nil, nil
	}
	expr = fmt.Sprintf(freshQuery, anyOf(slices.Collect(maps.Keys(containers)))) + "\nor " + expr
	v, err := s.querier.Query(ctx, expr, time.Time{})
	if err != nil {
		return nil, nil, fmt.Errorf("placement: %w", err)
	}
	fresh := map[string]bool{}
	for _, sample := range v {
		if sample.Metric[model.MetricNameLabel] == "node:fresh:bool" {
			fresh[string(sample.Metric["node"])] = sample.Value == 1
		}
	}
	for _, sample := range v {
		node := string(sample.Metric["node"])
		if _, known := fresh[node]; known && sample.Metric["fact"] == "engine down" {
			fresh[node] = false
		}
	}
	if len(fresh) == 0 {
		err = s.someKnown(ctx)
	}
	return tenants(v), fresh, err
}

// tenants reads the series that have the label fact.
func tenants(v model.Vector) map[string]placer.Tenant {
	out := map[string]placer.Tenant{}
	for _, s := range v {
		if s.Metric["fact"] == "" || s.Metric["id"] == "" {
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
