package chart

import (
	"context"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"spillway/test/process"
)

// showsWhatAlertsAskFor holds the chart's alerts to metrics that there are: in a scrape, or, as those by reason or kind that have no value yet are in
// none, by name in the proxy's source.
func (p *pod) showsWhatAlertsAskFor(t *testing.T) {
	t.Helper()
	root := process.Repository(t)
	alerts, err := os.ReadFile(filepath.Join(root, "charts", "spillway", "alerts.yaml"))
	must(t, err)
	scrape, source := p.scrape(t.Context(), t), sourceOf(t, root)
	names := regexp.MustCompile(`spillway_[a-z_]+`).FindAllString(string(alerts), -1)
	if len(names) == 0 {
		t.Fatal("no alert asks for a metric")
	}
	for _, name := range names {
		if !strings.Contains(scrape, "\n# TYPE "+name+" ") && !strings.Contains(source, `"`+name+`"`) {
			t.Errorf("there is no metric %s", name)
		}
	}
}

func (p *pod) scrape(ctx context.Context, t *testing.T) string {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.metrics+"/metrics", nil)
	must(t, err)
	a, err := p.client.Do(r)
	must(t, err)
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	must(t, err)
	if a.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", a.StatusCode, text)
	}
	return "\n" + string(text)
}

// sourceOf is all of the proxy's source.
func sourceOf(t *testing.T, root string) string {
	t.Helper()
	var source strings.Builder
	for _, dir := range []string{"cmd", "internal"} {
		must(t, filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			source.Write(text)
			return err
		}))
	}
	return source.String()
}
