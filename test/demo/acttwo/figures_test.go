package main

import "testing"

func TestParseFigures(t *testing.T) {
	for _, c := range []struct {
		name, text string
		watches    int
		cpu        float64
		fails      bool
	}{
		{name: "nothing", text: ""},
		{
			name: "watches of ConfigMaps in every scope, and of nothing else",
			text: `# TYPE apiserver_longrunning_requests gauge
apiserver_longrunning_requests{component="apiserver",resource="configmaps",scope="cluster",verb="WATCH"} 3
apiserver_longrunning_requests{component="apiserver",resource="configmaps",scope="namespace",verb="WATCH"} 200
apiserver_longrunning_requests{component="apiserver",resource="pods",scope="cluster",verb="WATCH"} 7
apiserver_longrunning_requests{component="apiserver",resource="configmaps",scope="cluster",verb="GET"} 1
process_cpu_seconds_total 12.5
process_cpu_seconds_total_of_another 9
`,
			watches: 203, cpu: 12.5,
		},
		{name: "no number", text: "process_cpu_seconds_total many\n", fails: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := parseFigures(c.text)
			if f.watches != c.watches || f.cpu != c.cpu || (f.err != nil) != c.fails {
				t.Errorf("got %d watches, %v s, %v; want %d, %v s, failure %v", f.watches, f.cpu, f.err, c.watches, c.cpu, c.fails)
			}
		})
	}
}
