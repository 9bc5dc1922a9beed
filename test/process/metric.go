package process

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// Metric is the sum of a metric over all labels, read at the address that serves a proxy's metrics. The labels that a sample must
// begin with may be part of the name: name{label="x".
func Metric(t *testing.T, address, name string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for line := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || !strings.Contains(name, "{") && rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndexByte(rest, ' '):]), 64)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		total += int(n)
	}
	return total
}
