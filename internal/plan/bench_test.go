package plan

import "testing"

func BenchmarkParseTarget(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := ParseTarget("/apis/apps/v1/namespaces/c1/deployments/a"); !ok {
			b.Fatal("no target")
		}
	}
}
