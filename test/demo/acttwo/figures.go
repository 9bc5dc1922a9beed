package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// figures are kube-apiserver's metrics of itself: of one of its replicas, if there are several.
type figures struct {
	watches int     // of ConfigMaps that are open, by any client
	cpu     float64 // seconds used so far
	err     error   // why there are none
}

var sample = regexp.MustCompile(`(?m)^(apiserver_longrunning_requests|process_cpu_seconds_total)(?:\{(.*)\})? (\S+)$`)

// figures reads kube-apiserver's metrics, directly.
func (s *show) figures(ctx context.Context) figures {
	text, err := s.direct.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return figures{err: err}
	}
	return parseFigures(string(text))
}

func parseFigures(text string) (f figures) {
	for _, match := range sample.FindAllStringSubmatch(text, -1) {
		name, labels := match[1], match[2]
		value, err := strconv.ParseFloat(match[3], 64)
		if err != nil {
			return figures{err: fmt.Errorf("%s is %q", name, match[3])}
		}
		switch {
		case name == "process_cpu_seconds_total":
			f.cpu = value
		case strings.Contains(labels, `resource="configmaps"`) && strings.Contains(labels, `verb="WATCH"`):
			f.watches += int(value)
		}
	}
	return f
}
