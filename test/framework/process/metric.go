package process

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// Metric is ReadMetric of a proxy that must answer.
func Metric(t *testing.T, address, name string) int {
	t.Helper()
	total, err := ReadMetric(t.Context(), address, name)
	if err != nil {
		t.Fatal(err)
	}
	return total
}

// ReadMetric is the sum of a metric over all labels, read at the address that serves a proxy's
// metrics. The labels that a sample must begin with may be part of the name: name{label="x".
func ReadMetric(ctx context.Context, address, name string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err
	}
	total := 0
	for line := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || !strings.Contains(name, "{") && rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndexByte(rest, ' '):]), 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", line, err)
		}
		total += int(n)
	}
	return total, nil
}
