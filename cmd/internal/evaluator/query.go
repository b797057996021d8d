package evaluator

import (
	"fmt"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

// vectorOf converts a query's result. A scalar becomes a vector of one.
func vectorOf(v parser.Value) (model.Vector, error) {
	switch v := v.(type) {
	case promql.Scalar:
		return model.Vector{{Metric: model.Metric{}, Value: model.SampleValue(v.V), Timestamp: model.Time(v.T)}}, nil
	case promql.Vector:
		out := make(model.Vector, 0, len(v))
		for _, s := range v {
			if s.H != nil {
				return nil, fmt.Errorf("%s is a native histogram; apply histogram_quantile, histogram_sum or histogram_count", s.Metric)
			}
			m := make(model.Metric, s.Metric.Len())
			for name, value := range s.Metric.Map() {
				m[model.LabelName(name)] = model.LabelValue(value)
			}
			out = append(out, &model.Sample{Metric: m, Value: model.SampleValue(s.F), Timestamp: model.Time(s.T)})
		}
		return out, nil
	default:
		return nil, fmt.Errorf("the result is a %s; an instant vector or a scalar is needed", v.Type())
	}
}
