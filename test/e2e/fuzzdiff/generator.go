package fuzzdiff

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
)

// generator makes one request.
type generator struct {
	*rand.Rand
	state *State
	ask   ask
	sober bool   // as well-made clients send it, with nothing odd
	kind  string // the kind of metadata that is requested
}

// soberShare is how many requests are sober, in percent. The odd ones are mostly refused: they
// alone would hardly reach what the proxy holds.
const soberShare = 50

// generate makes the request of a number.
func generate(seed, number uint64, state *State) ask {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, number)), state: state, ask: ask{method: "GET"},
		kind: "PartialObjectMetadataList"}
	g.sober = g.percent(soberShare)
	choices := []choice{{56, g.list}, {18, g.get}, {11, g.watch}, {3, g.deprecatedWatch}}
	if !g.sober {
		choices = append(choices, choice{3, g.oddPath}, choice{2, g.oddMethod}, choice{1, g.elsewhere})
	}
	g.weighted(choices...)
	g.headers()
	return g.ask
}

// choice is one of several things to do, as often as its weight says.
type choice struct {
	weight int
	do     func()
}

func (g *generator) weighted(choices ...choice) {
	total := 0
	for _, c := range choices {
		total += c.weight
	}
	n := g.IntN(total)
	for _, c := range choices {
		if n -= c.weight; n < 0 {
			c.do()
			return
		}
	}
}

// percent is true as often.
func (g *generator) percent(n int) bool { return g.IntN(100) < n }

// odd is true as often, if the request may be odd.
func (g *generator) odd(n int) bool { return g.percent(n) && !g.sober }

func one[T any](g *generator, of ...T) T { return of[g.IntN(len(of))] }

func (g *generator) resource() Resource { return one(g, g.state.Resources...) }

// namespace is one that exists, one that does not, or none for all of them.
func (g *generator) namespace() string {
	switch {
	case g.percent(30):
		return ""
	case g.odd(5):
		return "none"
	}
	return one(g, g.state.Namespaces...)
}

// param adds a parameter whose value is escaped in one of the ways that mean the same.
func (g *generator) param(name, value string) {
	escaped := url.QueryEscape(value)
	switch {
	case g.percent(5):
		escaped = strings.ReplaceAll(escaped, "+", "%20")
	case g.percent(3):
		escaped = everyByte(value)
	case g.percent(2) && !strings.ContainsAny(value, " &#%+;\t\n"):
		escaped = value
	}
	g.ask.params = append(g.ask.params, name+"="+escaped)
}

// everyByte escapes what needs it and what does not.
func everyByte(text string) string {
	var b strings.Builder
	for i := range len(text) {
		fmt.Fprintf(&b, "%%%02x", text[i])
	}
	return b.String()
}

// yes is the first of the values, or any of them.
func (g *generator) yes(of ...string) string {
	if g.sober {
		return of[0]
	}
	return one(g, of...)
}

// list requests a collection (W-63).
func (g *generator) list() {
	r := g.resource()
	g.ask.path = r.collection(g.namespace())
	if g.percent(12) {
		g.param("continue", g.token())
		if g.odd(8) {
			g.param("resourceVersion", g.version())
		}
	} else {
		g.listVersion()
	}
	if g.percent(35) {
		g.param("limit", g.limit())
	}
	g.selectors(r)
	g.queryNoise()
	g.shuffle()
}

func (g *generator) listVersion() {
	if g.percent(12) {
		return // most recent
	}
	version := g.version()
	g.param("resourceVersion", version)
	switch {
	case !g.percent(25):
	case g.sober && version == "0": // which is no exact version
		g.param("resourceVersionMatch", "NotOlderThan")
	default:
		g.param("resourceVersionMatch", g.match())
	}
}

// get requests one object (W-95).
func (g *generator) get() {
	r := g.resource()
	namespace := one(g, g.state.Namespaces...)
	g.ask.path, g.kind = r.collection(namespace)+"/"+g.name(r), "PartialObjectMetadata"
	if g.percent(88) {
		g.param("resourceVersion", g.version())
	}
	if g.odd(10) { // which means nothing here (W-34)
		g.param("watch", "true")
	}
	if g.odd(5) {
		g.selectors(r)
	}
	g.queryNoise()
	g.shuffle()
}

func (g *generator) name(r Resource) string {
	switch {
	case g.odd(6):
		return one(g, "zz", "UPPER", "a.b.c", "-", "a%20b", "ü", strings.Repeat("x", 300))
	case g.odd(2):
		return one(g, ".", "..", "%2e%2e", "a%2Fb", "%61")
	}
	return one(g, r.Names...)
}

// watch requests events (W-100).
func (g *generator) watch() {
	r := g.resource()
	g.ask.path = r.collection(g.namespace())
	g.param("watch", g.yes("1", "true", "True", "t", "yes", ""))
	g.watchOptions(r)
}

// deprecatedWatch uses a path that always watches (W-33).
func (g *generator) deprecatedWatch() {
	r := g.resource()
	g.ask.path = r.deprecated(g.namespace())
	if g.percent(30) {
		g.ask.path = r.deprecated(one(g, g.state.Namespaces...)) + "/" + g.name(r)
	}
	if g.odd(20) {
		g.param("watch", one(g, "0", "false", "1"))
	}
	g.watchOptions(r)
}

func (g *generator) watchOptions(r Resource) {
	g.param("timeoutSeconds", one(g, "1", "1", "1", "1", "2"))
	if g.percent(80) {
		g.param("resourceVersion", g.watchVersion())
	}
	if g.percent(50) {
		g.param("allowWatchBookmarks", g.yes("true", "1", "false", ""))
	}
	if g.percent(25) {
		g.param("sendInitialEvents", g.yes("true", "true", "false", "1", ""))
		if g.sober {
			g.param("resourceVersionMatch", "NotOlderThan")
		} else if g.percent(85) {
			g.param("resourceVersionMatch", one(g, "NotOlderThan", "NotOlderThan", "NotOlderThan", g.match()))
		}
	}
	if g.odd(5) {
		g.param("limit", g.limit())
	}
	if g.odd(3) {
		g.param("continue", g.token())
	}
	g.selectors(r)
	g.queryNoise()
	g.shuffle()
}

// watchVersion is one from which both sides remember, or neither.
func (g *generator) watchVersion() string {
	for {
		text := g.version()
		if n, err := strconv.ParseUint(text, 10, 64); err != nil || !g.state.forgotten(n) {
			return text
		}
	}
}

// shuffle changes the order of parameters. The first of a name counts, so that is a change of
// meaning where one is repeated.
func (g *generator) shuffle() {
	g.Shuffle(len(g.ask.params), func(i, j int) {
		g.ask.params[i], g.ask.params[j] = g.ask.params[j], g.ask.params[i]
	})
}
