package internal_test

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// figure is a quantity in a text: its value in seconds, bytes or as a factor, and half of its last
// digit.
type figure struct {
	text      string
	dimension string // "s", "B", or "" for a factor
	value     float64
	halfDigit float64
}

var (
	// units are those of measured quantities, each with its dimension and size.
	units = map[string]struct {
		dimension string
		size      float64
	}{
		"ns": {"s", 1e-9}, "µs": {"s", 1e-6}, "ms": {"s", 1e-3}, "s": {"s", 1}, "min": {"s", 60},
		"B": {"B", 1}, "kB": {"B", 1e3}, "MB": {"B", 1e6}, "GB": {"B", 1e9},
		"KiB": {"B", 1 << 10}, "MiB": {"B", 1 << 20}, "GiB": {"B", 1 << 30}, "times": {"", 1}, "": {"", 1},
	}
	number   = `([0-9][0-9,]*(?:\.[0-9]+)?)`
	quantity = regexp.MustCompile(number + `(?: (?:to|and|or|of|instead of|→) ` + number + `)?[ \x{a0}]?` +
		`(ns|µs|ms|s|min|B|kB|MB|GB|KiB|MiB|GiB|times)\b`)
	rest    = regexp.MustCompile(`[0-9] (kB|MB|KiB|MiB|GiB) of ` + number)
	bare    = regexp.MustCompile(number)
	minutes = regexp.MustCompile(`\b(\d+)m(\d+(?:\.\d+)?)s\b`)
	// factor finds by how much the second quantity of a row is more than the first.
	factor = regexp.MustCompile(number + `×`)
	// resultsTitle finds how a page cites a chapter of RESULTS.md.
	resultsTitle = regexp.MustCompile(`(?:\*|")([A-Z][^*"|]+)(?:\*|")`)
	resultsHead  = regexp.MustCompile(`(?m)^##+ ([^:\n]+)(?::.*)?$`)
	// svgMeasured finds the comment of a picture that shows measurements, with their chapters.
	svgMeasured = regexp.MustCompile(`<!-- Figures: (.*?) -->`)
	svgText     = regexp.MustCompile(`(?s)<text[^>]*>(.*?)</text>`)
	svgTag      = regexp.MustCompile(`<[^>]*>`)
)

// figuresOf are the quantities with a unit in a text; with factors, numbers without one as well.
func figuresOf(text string, factors bool) (all []figure) {
	add := func(digits, unit string) {
		value, err := strconv.ParseFloat(strings.ReplaceAll(digits, ",", ""), 64)
		if err != nil {
			return
		}
		last := 1.0
		if _, decimals, ok := strings.Cut(digits, "."); ok {
			last = math.Pow10(-len(decimals))
		}
		u := units[unit]
		all = append(all, figure{digits + " " + unit, u.dimension, value * u.size, last * u.size / 2})
	}
	for _, found := range minutes.FindAllStringSubmatch(text, -1) {
		m, _ := strconv.Atoi(found[1])
		s, _ := strconv.ParseFloat(found[2], 64)
		all = append(all, figure{found[0], "s", float64(60*m) + s, 0})
	}
	for _, found := range quantity.FindAllStringSubmatch(text, -1) {
		add(found[1], found[3])
		if found[2] != "" {
			add(found[2], found[3])
		}
	}
	for _, found := range rest.FindAllStringSubmatch(text, -1) {
		add(found[2], found[1])
	}
	if factors {
		for _, found := range bare.FindAllString(text, -1) {
			add(found, "")
		}
	}
	return all
}

// results is RESULTS.md by chapter.
type results struct {
	chapters map[string][]figure
	all      []figure
}

func newResults(text string) results {
	r := results{chapters: map[string][]figure{}, all: figuresOf(text, true)}
	heads := resultsHead.FindAllStringSubmatchIndex(text, -1)
	for i, head := range heads {
		end := len(text)
		if i+1 < len(heads) {
			end = heads[i+1][0]
		}
		r.chapters[text[head[2]:head[3]]] = figuresOf(text[head[0]:end], true)
	}
	return r
}

// check returns what a text cites that RESULTS.md does not have. A paragraph, a list's item or a
// table's row counts if it names RESULTS.md or one of its chapters. A row without a chapter has
// that of the row above it, and the first that of the paragraph that introduces the table.
func (r results) check(text string) (wrong []string) {
	var from []figure
	for _, block := range blocksOf(text) {
		row := strings.HasPrefix(block, "|")
		if cited := r.cited(block); cited != nil || !row {
			from = cited
		}
		if from == nil {
			continue
		}
		figures := figuresOf(block, false)
		for _, f := range figures {
			if !isMeasured(f, from) {
				wrong = append(wrong, f.text)
			}
		}
		if by := factor.FindStringSubmatch(block); row && by != nil && !isRatio(by[1], figures) {
			wrong = append(wrong, by[0])
		}
	}
	return wrong
}

// blocksOf are the paragraphs, list items and table rows of a page, without its code blocks.
func blocksOf(text string) (blocks []string) {
	code, begins := false, true
	for line := range strings.SplitSeq(text, "\n") {
		start := strings.TrimSpace(line)
		if strings.HasPrefix(start, "```") {
			code = !code
			begins = true
			continue
		}
		switch {
		case code:
		case start == "":
			begins = true
		case begins || start[0] == '|' || strings.HasPrefix(start, "* "):
			blocks, begins = append(blocks, start), false
		default:
			blocks[len(blocks)-1] += " " + start
		}
	}
	return blocks
}

// cited are the figures of the chapters of RESULTS.md that a text names, or else all of them, if it
// names the file.
func (r results) cited(text string) (from []figure) {
	for _, title := range resultsTitle.FindAllStringSubmatch(text, -1) {
		from = append(from, r.chapters[title[1]]...)
	}
	if from == nil && strings.Contains(text, "RESULTS.md]") {
		return r.all
	}
	return from
}

// isMeasured reports that one of the figures, rounded, is f.
func isMeasured(f figure, in []figure) bool {
	return slices.ContainsFunc(in, func(m figure) bool {
		return m.dimension == f.dimension && math.Abs(m.value-f.value) <= f.halfDigit*(1+1e-9)
	})
}

// isRatio reports that digits are the second of two figures divided by the first.
func isRatio(digits string, of []figure) bool {
	if len(of) != 2 || of[0].dimension != of[1].dimension {
		return false
	}
	ratio, ours, theirs := figuresOf(digits, true)[0], of[0], of[1]
	least := (theirs.value - theirs.halfDigit) / (ours.value + ours.halfDigit)
	most := (theirs.value + theirs.halfDigit) / (ours.value - ours.halfDigit)
	return ratio.value > least-ratio.halfDigit && ratio.value < most+ratio.halfDigit
}

// pictureText is what a picture of measurements shows, without settings, as a page: rows of a table
// that cite chapters.
func pictureText(svg string) string {
	comment := svgMeasured.FindStringSubmatch(svg)
	if comment == nil {
		return ""
	}
	chapters, settings, _ := strings.Cut(comment[1], " Settings: ")
	page := chapters + "\n"
	for _, found := range svgText.FindAllStringSubmatch(svg, -1) {
		text := svgTag.ReplaceAllString(found[1], " ")
		for setting := range strings.SplitSeq(settings, ", ") {
			if setting != "" {
				text = strings.ReplaceAll(text, setting, "")
			}
		}
		page += "| " + text + "\n"
	}
	return page
}

// TestFiguresAreMeasured finds the figures of pages and pictures in bench/RESULTS.md.
func TestFiguresAreMeasured(t *testing.T) {
	files := texts(t, ".md", ".svg")
	r := newResults(files["bench/RESULTS.md"])
	found := 0
	for file, text := range files {
		if file == "bench/RESULTS.md" {
			continue
		}
		if strings.HasSuffix(file, ".svg") {
			text = pictureText(text)
		}
		for _, block := range blocksOf(text) {
			if r.cited(block) != nil {
				found++
			}
		}
		for _, wrong := range r.check(text) {
			t.Errorf("%s: %s is not in the chapter of bench/RESULTS.md that is named beside it", file, wrong)
		}
	}
	if found < 40 {
		t.Errorf("only %d places cite bench/RESULTS.md", found)
	}
}

// TestFigures shows which figures are found and which are not.
func TestFigures(t *testing.T) {
	r := newResults("# Results\n\n## A herd: `make bench-herd`\n\n| CPU | 15.27 µs | 49.18 µs | 0.310 |\n" +
		"within 1m3.1s\n\n### The first sync: `make`\n\nIt took 1,234 kB, 1.12×.\n")
	for text, want := range map[string][]string{
		"It costs 15.3 µs ([RESULTS.md](RESULTS.md), *A herd*).":                                  nil,
		"It costs 15.2 µs (*A herd*), all within 63.1 s.":                                         {"15.2 µs"},
		"It costs 15.3 µs (*The first sync*).":                                                    {"15.3 µs"},
		"It costs 99 µs.":                                                                         nil,
		"It takes 1.2 to 1.3 MB: 1.12 times (\"The first sync\").":                                {"1.3 MB"},
		"By [RESULTS.md](x):\n\n| a | 15.3 µs | 49.2 µs | 3.2× |":                                 nil,
		"By [RESULTS.md](x):\n\n| a | 15.3 µs | 49.2 µs | 4.1× |\n| b | 7 s |":                    {"4.1×", "7 s"},
		"| a | 15 µs | *A herd* |\n| b | 49 µs | |\n| c | 1,235 kB | |":                           {"1,235 kB"},
		"* It takes 7 s.\n* It takes 8 s (*A herd*).\n\n```\n9 s (*A herd*)\n```":                 {"8 s"},
		pictureText("<!-- Figures: *A herd* --><text x='1'>15.3 µs, <b>3 ms</b></text>"):          {"3 ms"},
		pictureText("<!-- Figures: *A herd*. Settings: 3 ms --><text>15.3 µs, 3 ms, 4 ms</text>"): {"4 ms"},
		pictureText("<text>3 ms</text>"):                                                          nil,
	} {
		if got := r.check(text); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
