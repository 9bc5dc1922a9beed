// Package monitoring holds what operators look at to what the running proxy shows: every query of
// the chart's dashboard and alerts finds series and labels in a scrape, docs/metrics.md knows every
// metric in it, and each alert fires and stays silent as it should.
package monitoring
