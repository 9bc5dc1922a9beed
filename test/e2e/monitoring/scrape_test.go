package monitoring

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

// job and instance are the labels that Prometheus gives to all series of a target.
const (
	job      = "spillway-metrics"
	instance = "127.0.0.1:9464"
)

// scrape is what Prometheus makes of /metrics.
type scrape struct {
	text   []byte
	series []labels.Labels
	types  map[string]model.MetricType // by name
}

// scraped scrapes a proxy, and labels what it gets as Prometheus does.
func scraped(t *testing.T, address string) scrape {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"/metrics", nil)
	must(t, err)
	a, err := http.DefaultClient.Do(r)
	must(t, err)
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	must(t, err)
	if a.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", a.StatusCode, text)
	}
	return parsed(t, text)
}

func parsed(t *testing.T, text []byte) scrape {
	t.Helper()
	s := scrape{text: text, types: map[string]model.MetricType{}}
	p := textparse.NewPromParser(bytes.Clone(text), labels.NewSymbolTable(), false)
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) { // and Prometheus adds that it was there
			s.series = append(s.series, labels.FromStrings(model.MetricNameLabel, "up", "job", job, "instance", instance))
			return s
		}
		must(t, err)
		switch entry {
		case textparse.EntryType:
			name, kind := p.Type()
			s.types[string(name)] = kind
		case textparse.EntrySeries:
			var of labels.Labels
			p.Labels(&of)
			s.series = append(s.series, labels.NewBuilder(of).Set("job", job).Set("instance", instance).Labels())
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
