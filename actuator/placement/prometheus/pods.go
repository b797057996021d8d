package prometheus

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/laxity/laxity/actuator/placement/placer"
)

// podsQuery asks which containers pods have, and which of them hold memory of which GPU or have a task there.
const podsQuery = `label_replace(max by (node, container, id, namespace, pod) (gpu_container_info%[2]s), "fact", "known", "", "")
or label_replace(max by (node, gpu, container) (gpu_container_memory_used_bytes{node=~%[1]s} > 0) * on (node, container) group_left (id, namespace, pod) max by (node, container, id, namespace, pod) (gpu_container_info%[2]s), "fact", "memory", "", "")
or label_replace(sum by (node, gpu, container) (gpu_tasks{node=~%[1]s} > 0) * on (node, container) group_left (id, namespace, pod) max by (node, container, id, namespace, pod) (gpu_container_info%[2]s), "fact", "tasks", "", "")`

// Pods implements placer.Source. Of several containers or GPUs it takes the first by name, so that
// the answer stays.
func (s *Source) Pods(ctx context.Context, pods []placer.PodOn) (map[placer.PodOn]placer.Use, error) {
	if len(pods) == 0 {
		return nil, nil
	}
	var nodes, namespaces, names []string
	asked := map[placer.PodOn]bool{}
	for _, p := range pods {
		namespace, name, _ := strings.Cut(p.Pod, "/")
		nodes, namespaces, names = append(nodes, p.Node), append(namespaces, namespace), append(names, name)
		asked[p] = true
	}
	which := fmt.Sprintf(`{node=~%s,namespace=~%s,pod=~%s}`, anyOf(nodes), anyOf(namespaces), anyOf(names))
	v, err := s.querier.Query(ctx, fmt.Sprintf(podsQuery, anyOf(nodes), which), time.Time{})
	if err != nil {
		return nil, fmt.Errorf("placement: %w", err)
	}
	out := map[placer.PodOn]placer.Use{}
	for _, sample := range v {
		p := placer.PodOn{Node: string(sample.Metric["node"]), Pod: string(sample.Metric["namespace"]) + "/" + string(sample.Metric["pod"])}
		if !asked[p] {
			continue
		}
		use := out[p]
		found := placer.Use{Container: string(sample.Metric["id"]), GPU: string(sample.Metric["gpu"])}
		if found.GPU != "" && (use == placer.Use{} || cmp.Or(cmp.Compare(found.Container, use.Container), cmp.Compare(found.GPU, use.GPU)) < 0) {
			use = found
		}
		out[p] = use
	}
	return out, nil
}
