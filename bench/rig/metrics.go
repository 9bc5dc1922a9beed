package rig

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/rest"

	"spillway/test/framework/controlplane"
)

// Metrics are some metrics of a process at one moment, by name.
type Metrics map[string]*dto.MetricFamily

// Scraper reads the metrics of one process.
type Scraper struct {
	client *http.Client
	url    string
}

// APIServerMetrics reads those of kube-apiserver, as admin.
func APIServerMetrics(cp *controlplane.ControlPlane) (*Scraper, error) {
	client, err := rest.HTTPClientFor(cp.Config(controlplane.Admin))
	if err != nil {
		return nil, err
	}
	return &Scraper{client: client, url: cp.URL() + "/metrics"}, nil
}

// Metrics reads those of the kube-apiserver that is compared.
func (p *Pair) Metrics() *Scraper {
	return &Scraper{client: NewTLSClient(p.APIServer.Token), url: p.APIServer.URL + "/metrics"}
}

// Read scrapes the metrics named. The others are not parsed: kube-apiserver has megabytes of them.
func (s *Scraper) Read(ctx context.Context, names ...string) (Metrics, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return nil, err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s", s.url, response.Status)
	}
	var wanted bytes.Buffer
	in := bufio.NewScanner(response.Body)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		line := in.Text()
		name := line
		if end := strings.IndexAny(line, "{ "); end >= 0 {
			name = line[:end]
		}
		if slices.Contains(names, name) {
			wanted.WriteString(line + "\n")
		}
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("GET %s: %w", s.url, err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(&wanted)
}

// Sum adds up the samples of a metric whose labels have the values given as name, value, name,
// value...; 0 if there is none.
func (m Metrics) Sum(name string, labels ...string) float64 {
	total := 0.0
	for _, sample := range m[name].GetMetric() {
		if matches(sample, labels) {
			total += sample.GetUntyped().GetValue()
		}
	}
	return total
}

func matches(sample *dto.Metric, labels []string) bool {
	for i := 0; i+1 < len(labels); i += 2 {
		if labelOf(sample, labels[i]) != labels[i+1] {
			return false
		}
	}
	return true
}

func labelOf(sample *dto.Metric, name string) string {
	for _, l := range sample.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// By adds up a metric by the values of one label.
func (m Metrics) By(name, label string) map[string]float64 {
	sums := map[string]float64{}
	for _, sample := range m[name].GetMetric() {
		sums[labelOf(sample, label)] += sample.GetUntyped().GetValue()
	}
	return sums
}
