package monitoring

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"spillway/test/framework/process"
)

// documentedMetric is what docs/metrics.md says of a metric.
type documentedMetric struct {
	kind   string
	labels []string
}

// reference is docs/metrics.md, by name.
func reference(t *testing.T) map[string]documentedMetric {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(process.Repository(t), "docs", "metrics.md"))
	must(t, err)
	all := map[string]documentedMetric{}
	for _, row := range regexp.MustCompile(
		"(?m)^\\| `(spillway_[a-z0-9_]+)` \\| ([a-z]+) \\| ([^|]*) \\|").FindAllStringSubmatch(string(text), -1) {
		d := documentedMetric{kind: row[2], labels: regexp.MustCompile("[a-z_]+").FindAllString(row[3], -1)}
		slices.Sort(d.labels)
		all[row[1]] = d
	}
	return all
}

// knows reports what a scrape has of Spillway's own that the reference has not, or has otherwise.
func knows(reference map[string]documentedMetric, s scrape) (problems []string) {
	for name, kind := range s.types {
		switch d, known := reference[name]; {
		case !strings.HasPrefix(name, "spillway_"):
		case !known:
			problems = append(problems, name+" is not in it")
		case d.kind != string(kind):
			problems = append(problems, name+" is a "+string(kind)+", not a "+d.kind)
		}
	}
	for _, series := range s.series {
		name := series.Get(model.MetricNameLabel)
		if d, known := reference[name]; known {
			if has := labelsOf(series); !slices.Equal(has, d.labels) {
				problems = append(problems, name+" has the labels "+strings.Join(has, ", ")+", not "+strings.Join(d.labels, ", "))
			}
		}
	}
	return problems
}

// labelsOf are those that the proxy gave a series.
func labelsOf(series labels.Labels) (names []string) {
	series.Range(func(l labels.Label) {
		switch l.Name {
		case model.MetricNameLabel, "job", "instance":
		default:
			names = append(names, l.Name)
		}
	})
	return names
}
